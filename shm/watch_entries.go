package shm

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
)

// EntryWatcher reports changes of the entries of one file. If nothing changed, an Update costs one load. Otherwise it costs
// two loads for each slot and a copy of each changed entry, where Reader.Entries copies every entry. Use an EntryWatcher from
// one goroutine at a time. Reader.WatchEntries makes one.
type EntryWatcher struct {
	r       *Reader
	v       *view
	names   map[string]bool // report only entries of these names; nil: report all
	changes uint64          // catalogueChanges before the last complete Update, plus one; 0: no Update was complete
	seen    []stamp         // by index
	moved   bool            // an entry may have been reported more than once, or removed
	scratch entryMem
}

// stamp identifies the content of an entry: two contents that a reader can tell apart have different stamps. The next counter
// of a slot has another generation, and a change of the two-slot part raises seq.
type stamp struct{ identity, seq uint64 }

// WatchEntries returns an EntryWatcher whose first Update reports all entries.
func (r *Reader) WatchEntries() *EntryWatcher { return &EntryWatcher{r: r, v: r.v} }

// Update calls changed for each live entry added or changed since the last Update, and removed for each counter removed
// since. If a slot has another counter now, Update calls removed, then changed. It allocates nothing if no entry changed.
// After an error the next Update reports what this one missed. A counter that continues in an Exchange is missing after
// Update only where it can be missing from Reader.Entries.
func (ew *EntryWatcher) Update(changed func(Entry), removed func(Handle)) error {
	err := ew.r.guard(func() error {
		return cmp.Or(ew.update(changed, removed), ew.v.stale())
	})
	if err != nil {
		return fmt.Errorf("%s: following the catalogue: %w", ew.r.path, err)
	}
	return nil
}

func (ew *EntryWatcher) update(changed func(Entry), removed func(Handle)) error {
	if ew.changes == atomic.LoadUint64(&ew.v.hdr.catalogueChanges)+1 {
		return nil
	}

	var s scans
	for first := true; s.next(ew.v); first = false {
		ew.moved = ew.moved || !first
		complete, err := ew.scan(s.changes, changed, removed)
		if err != nil {
			return err
		}
		if complete {
			ew.changes = s.changes + 1
		}
	}
	return nil
}

// scan visits each entry once. complete is false if the writer changed an entry at each try to read it.
//
// The caller must have loaded changes, the word catalogueChanges, with acquire before the scan. The writer raises that word
// after it stores an entry (barrier changes-release), so scan sees every change which the word counts, on arm64 too. scan may
// or may not see a later change, but that one raises the word again, and the next Update scans once more.
func (ew *EntryWatcher) scan(changes uint64, changed func(Entry), removed func(Handle)) (complete bool, err error) {
	complete = true
	err = ew.v.eachUsed(func(i uint32, p place) {
		if !ew.compare(i, p, changed, removed) {
			complete = false
		}
	})
	if atomic.LoadUint64(&ew.v.hdr.catalogueChanges) != changes {
		ew.moved = true
		ew.dropRemoved(removed)
	}
	return complete, err
}

// compare reports what happened to the entry of index i since the last look at it. It returns false if the writer changed
// the entry at each try to read it.
func (ew *EntryWatcher) compare(i uint32, p place, changed func(Entry), removed func(Handle)) bool {
	e := p.entry()
	id := atomic.LoadUint64(&e.identity) // barrier entry-acquire
	live := id>>32 == entLive
	known := int(i) < len(ew.seen) && ew.seen[i].identity != 0
	if !known && !(live && ew.wants(e)) {
		return true // a live entry does not change its name
	}

	if n := int(i) + 1; n > len(ew.seen) {
		ew.seen = append(ew.seen, make([]stamp, n-len(ew.seen))...)
	}
	was := &ew.seen[i]
	if live && *was == (stamp{id, atomic.LoadUint64(&e.seq)}) {
		return true
	}

	before := Handle{Index: i, Generation: uint32(was.identity)}
	entry, err := p.describe(i, &ew.scratch)
	switch {
	case err == nil:
		if was.identity != 0 && entry.Handle != before {
			removed(before)
		}
		*was = stamp{ew.scratch.identity, ew.scratch.seq} // describe has copied both words with the fields
		changed(entry)
	case !errors.Is(err, ErrGone):
		return false
	case was.identity != 0:
		*was = stamp{}
		removed(before)
	}
	return true
}

// wants reports whether an entry has one of the names. If the writer reuses the entry during the copy, the answer is
// meaningless. Then catalogueChanges has moved, and the next scan asks again.
func (ew *EntryWatcher) wants(e *entryMem) bool {
	if ew.names == nil {
		return true
	}
	copyWords(wordsAt(&ew.scratch.name), wordsAt(&e.name))
	return ew.names[string(upToNUL(ew.scratch.name[:]))]
}

// dropRemoved reports counters removed after the scan had passed them.
//
// During an Exchange the scan may have met both a new counter and the old one that it replaces. dropRemoved always drops the
// old one: the writer stores RETIRED in the old entry before LIVE in the new one, and the scan loaded that LIVE with acquire.
// So this later load finds the old entry no longer LIVE. RETIRED has raised catalogueChanges too, so dropRemoved runs.
func (ew *EntryWatcher) dropRemoved(removed func(Handle)) {
	for i := range ew.seen {
		was := &ew.seen[i]
		if was.identity == 0 {
			continue
		}
		p, err := ew.v.place(uint32(i))
		if err == nil && atomic.LoadUint64(&p.entry().identity) != was.identity {
			removed(Handle{Index: uint32(i), Generation: uint32(was.identity)})
			*was = stamp{}
		}
	}
}

// entries reads the live entries of those names, in the order of the indices. If names is nil, it reads all.
func (v *view) entries(names map[string]bool) ([]Entry, error) {
	var read []Entry
	ew := EntryWatcher{v: v, names: names}
	err := ew.update(func(e Entry) { read = append(read, e) }, func(Handle) {})
	if !ew.moved {
		return read, err
	}

	// The writer was at work, so an index may have been read more than once. The last reading counts, unless the entry was
	// removed since.
	last := make([]int, len(ew.seen)) // by index: the place in read, plus one
	for i := range read {
		last[read[i].Handle.Index] = i + 1
	}
	var out []Entry
	for i, at := range last {
		if at == 0 || ew.seen[i].identity == 0 {
			continue
		}
		if e := read[at-1]; names == nil || names[e.Name] {
			out = append(out, e)
		}
	}
	return out, err
}
