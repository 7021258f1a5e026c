package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Catalogue follows the entries of one file. An Update costs one load if no entry has changed, else two
// loads for each slot and a copy of each entry that has changed; Reader.Entries copies all of them. It
// belongs to one goroutine at a time. Made by Reader.Catalogue.
type Catalogue struct {
	r       *Reader
	changes uint64  // catalogueChanges before the last complete Update, plus one; 0: no Update was complete
	seen    []stamp // by index
	scratch entryMem
}

// stamp is the version of an entry: two contents that a reader can see have different stamps. The next
// counter of a slot has another generation, and a change of the two-slot part moves seq.
type stamp struct{ identity, seq uint64 }

// Catalogue returns a Catalogue for which all entries are new.
func (r *Reader) Catalogue() *Catalogue { return &Catalogue{r: r} }

// Update calls changed for each live entry that was added or changed since the last Update, and removed
// for each counter that was removed. A slot that has another counter now is reported as removed, then as
// changed. Update allocates nothing if no entry has changed. After an error the next Update goes on.
func (c *Catalogue) Update(changed func(Entry), removed func(Handle)) error {
	err := c.r.guard(func() error {
		if err := c.update(changed, removed); err != nil {
			return err
		}
		return c.r.v.stale()
	})
	if err != nil {
		return fmt.Errorf("%s: following the catalogue: %w", c.r.path, err)
	}
	return nil
}

func (c *Catalogue) update(changed func(Entry), removed func(Handle)) error {
	// Loaded before the entries. A change that this load has seen is seen below (barrier changes-release
	// lies behind the entry's words); any later change moves the word, and the next Update scans again.
	changes := atomic.LoadUint64(&c.r.v.hdr.catalogueChanges) // barrier changes-acquire
	if c.changes == changes+1 {
		return nil
	}
	complete := true
	err := c.r.v.eachUsed(func(i uint32, p place) {
		if n := int(i) + 1; n > len(c.seen) {
			c.seen = append(c.seen, make([]stamp, n-len(c.seen))...)
		}
		was, e := &c.seen[i], p.entry()
		id := atomic.LoadUint64(&e.identity) // barrier entry-acquire
		if id>>32 == entLive && *was == (stamp{id, atomic.LoadUint64(&e.seq)}) {
			return
		}
		before := Handle{Index: i, Generation: uint32(was.identity)}
		entry, err := p.describe(i, &c.scratch)
		switch {
		case err == nil:
			if was.identity != 0 && entry.Handle != before {
				removed(before)
			}
			// describe has copied both words with the fields.
			*was = stamp{c.scratch.identity, c.scratch.seq}
			changed(entry)
		case !errors.Is(err, ErrGone):
			complete = false // the writer changed the entry at each try
		case was.identity != 0:
			*was = stamp{}
			removed(before)
		}
	})
	if err == nil && complete {
		c.changes = changes + 1
	}
	return err
}
