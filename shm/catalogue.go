package shm

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
)

// Catalogue follows the entries of one file. An Update costs one load if no entry has changed. Otherwise it costs two
// loads for each slot and a copy of each changed entry, where Reader.Entries copies all of them. A Catalogue belongs to
// one goroutine at a time. Made by Reader.Catalogue.
type Catalogue struct {
	r       *Reader
	v       *view
	names   map[string]bool // entries of other names are left out; nil: none is
	changes uint64          // catalogueChanges before the last complete Update, plus one; 0: no Update was complete
	seen    []stamp         // by index
	moved   bool            // an entry may have been reported more than once, or removed
	scratch entryMem
}

// stamp is the version of an entry: two contents that a reader can see have different stamps. The next counter of a
// slot has another generation, and a change of the two-slot part moves seq.
type stamp struct{ identity, seq uint64 }

// Catalogue returns a Catalogue for which all entries are new.
func (r *Reader) Catalogue() *Catalogue { return &Catalogue{r: r, v: r.v} }

// Update calls changed for each live entry that was added or changed since the last Update, and removed for each counter
// that was removed. If a slot has another counter now, Update calls removed, then changed. It allocates nothing if no
// entry has changed. After an error the next Update goes on from there. A counter that goes on in an Exchange is missing
// after Update only where it can be missing from Reader.Entries.
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

// scan visits each entry once. The caller has loaded changes, the word catalogueChanges, before: so scan sees every change
// that this word counts (barrier changes-release lies behind the entry's words). A later change makes the next Update scan
// again. complete is false if the writer changed an entry at each try to read it.
func (c *Catalogue) scan(changes uint64, changed func(Entry), removed func(Handle)) (complete bool, err error) {
	complete = true
	err = c.v.eachUsed(func(i uint32, p place) {
		if !c.compare(i, p, changed, removed) {
			complete = false
		}
	})
	if atomic.LoadUint64(&c.v.hdr.catalogueChanges) != changes {
		c.moved = true
		c.dropRemoved(removed)
	}
	return complete, err
}

// compare reports what has happened to the entry of index i since the last look at it. It returns false if the writer
// changed the entry at each try to read it.
func (c *Catalogue) compare(i uint32, p place, changed func(Entry), removed func(Handle)) bool {
	e := p.entry()
	id := atomic.LoadUint64(&e.identity) // barrier entry-acquire
	live := id>>32 == entLive
	known := int(i) < len(c.seen) && c.seen[i].identity != 0
	if !known && !(live && c.wants(e)) {
		return true // a live entry does not change its name
	}

	if n := int(i) + 1; n > len(c.seen) {
		c.seen = append(c.seen, make([]stamp, n-len(c.seen))...)
	}
	was := &c.seen[i]
	if live && *was == (stamp{id, atomic.LoadUint64(&e.seq)}) {
		return true
	}

	before := Handle{Index: i, Generation: uint32(was.identity)}
	entry, err := p.describe(i, &c.scratch)
	switch {
	case err == nil:
		if was.identity != 0 && entry.Handle != before {
			removed(before)
		}
		*was = stamp{c.scratch.identity, c.scratch.seq} // describe has copied both words with the fields
		changed(entry)
	case !errors.Is(err, ErrGone):
		return false
	case was.identity != 0:
		*was = stamp{}
		removed(before)
	}
	return true
}

// wants reports whether an entry has one of the names. If the writer gives the entry to another counter meanwhile, the
// answer means nothing, and catalogueChanges has moved.
func (c *Catalogue) wants(e *entryMem) bool {
	if c.names == nil {
		return true
	}
	copyWords(wordsAt(&c.scratch.name), wordsAt(&e.name))
	return c.names[string(upToNUL(c.scratch.name[:]))]
}

// dropRemoved reports the counters that were removed after the scan had passed them. That includes the predecessor of
// every counter that the scan met, if an Exchange was going on: the scan has loaded LIVE of the new counter with acquire,
// and finds the old one no longer LIVE. RETIRED of the old one has moved catalogueChanges, too.
func (c *Catalogue) dropRemoved(removed func(Handle)) {
	for i := range c.seen {
		was := &c.seen[i]
		if was.identity == 0 {
			continue
		}
		p, err := c.v.place(uint32(i))
		if err == nil && atomic.LoadUint64(&p.entry().identity) != was.identity {
			removed(Handle{Index: uint32(i), Generation: uint32(was.identity)})
			*was = stamp{}
		}
	}
}

// entries reads the live entries of those names, or every one if names is nil, in the order of the indices.
func (v *view) entries(names map[string]bool) ([]Entry, error) {
	var read []Entry
	c := Catalogue{v: v, names: names}
	err := c.update(func(e Entry) { read = append(read, e) }, func(Handle) {})
	if !c.moved {
		return read, err
	}

	// The writer was at work: of each index the entry that was read last counts, unless it was removed since.
	last := make([]int, len(c.seen)) // by index: the place in read, plus one
	for i := range read {
		last[read[i].Handle.Index] = i + 1
	}
	var out []Entry
	for i, at := range last {
		if at == 0 || c.seen[i].identity == 0 {
			continue
		}
		if e := read[at-1]; names == nil || names[e.Name] {
			out = append(out, e)
		}
	}
	return out, err
}
