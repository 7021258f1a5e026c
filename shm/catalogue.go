package shm

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
)

// Catalogue follows the entries of one file. An Update costs one load if no entry has changed, else two
// loads for each slot and a copy of each entry that has changed; Reader.Entries copies all of them. It
// belongs to one goroutine at a time. Made by Reader.Catalogue.
type Catalogue struct {
	r       *Reader
	v       *view
	names   map[string]bool // entries of other names are left out; nil: none is
	changes uint64          // catalogueChanges before the last complete Update, plus one; 0: no Update was complete
	seen    []stamp         // by index
	moved   bool            // an entry may have been reported more than once, or removed
	scratch entryMem
}

// stamp is the version of an entry: two contents that a reader can see have different stamps. The next
// counter of a slot has another generation, and a change of the two-slot part moves seq.
type stamp struct{ identity, seq uint64 }

// Catalogue returns a Catalogue for which all entries are new.
func (r *Reader) Catalogue() *Catalogue { return &Catalogue{r: r, v: r.v} }

// Update calls changed for each live entry that was added or changed since the last Update, and removed
// for each counter that was removed. A slot that has another counter now is reported as removed, then as
// changed. Update allocates nothing if no entry has changed. After an error the next Update goes on. A counter that goes
// on in an Exchange is missing after Update only where it can be missing from Reader.Entries.
func (c *Catalogue) Update(changed func(Entry), removed func(Handle)) error {
	err := c.r.guard(func() error {
		return cmp.Or(c.update(changed, removed), c.v.stale())
	})
	if err != nil {
		return fmt.Errorf("%s: following the catalogue: %w", c.r.path, err)
	}
	return nil
}

func (c *Catalogue) update(changed func(Entry), removed func(Handle)) error {
	if c.changes == atomic.LoadUint64(&c.v.hdr.catalogueChanges)+1 {
		return nil
	}
	var s scans
	for first := true; s.next(c.v); first = false {
		c.moved = c.moved || !first
		complete, err := c.scan(s.changes, changed, removed)
		if err != nil {
			return err
		}
		if complete {
			c.changes = s.changes + 1
		}
	}
	return nil
}

// isWanted reports whether an entry has one of the names. If the writer gives the entry to another counter meanwhile, the
// answer means nothing, and the word has moved.
func (c *Catalogue) isWanted(e *entryMem) bool {
	copyWords(wordsAt(&c.scratch.name), wordsAt(&e.name))
	return c.names[string(upToNUL(c.scratch.name[:]))]
}

// scan looks at all entries once. A change that word, catalogueChanges before, tells is seen (barrier changes-release lies
// behind the entry's words); any later change moves the word, and the next look scans again. complete is false where
// the writer changed an entry at each try.
func (c *Catalogue) scan(word uint64, changed func(Entry), removed func(Handle)) (complete bool, err error) {
	complete = true
	err = c.v.eachUsed(func(i uint32, p place) {
		e := p.entry()
		id := atomic.LoadUint64(&e.identity) // barrier entry-acquire
		known := int(i) < len(c.seen) && c.seen[i].identity != 0
		if !known && (id>>32 != entLive || c.names != nil && !c.isWanted(e)) {
			return // a live entry does not change its name
		}
		if n := int(i) + 1; n > len(c.seen) {
			c.seen = append(c.seen, make([]stamp, n-len(c.seen))...)
		}
		was := &c.seen[i]
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
			complete = false
		case was.identity != 0:
			*was = stamp{}
			removed(before)
		}
	})
	// A counter whose successor was met is removed: its entry is not LIVE for a reader that has loaded LIVE of the new
	// one with acquire. Then the word has moved.
	if atomic.LoadUint64(&c.v.hdr.catalogueChanges) == word {
		return complete, err
	}
	c.moved = true
	for i := range c.seen {
		was := &c.seen[i]
		if p, err := c.v.place(uint32(i)); was.identity != 0 && err == nil && atomic.LoadUint64(&p.entry().identity) != was.identity {
			removed(Handle{Index: uint32(i), Generation: uint32(was.identity)})
			*was = stamp{}
		}
	}
	return complete, err
}
