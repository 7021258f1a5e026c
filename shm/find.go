package shm

import (
	"errors"
	"sync/atomic"
)

// Find lists the live counters of those names, in the order of their indices; names that no counter has
// are left out. It is for one look: of the other entries it reads the name alone, where Lookup
// makes a table of all names for the looks to come.
func (r *Reader) Find(names ...string) ([]Entry, error) {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	var out []Entry
	err := r.guard(func() error {
		var scratch entryMem
		err := r.v.eachUsed(func(i uint32, p place) {
			// A live entry does not change its name.
			e := p.entry()
			if atomic.LoadUint64(&e.identity)>>32 != entLive || !wanted[string(upToNUL(e.name[:]))] {
				return
			}
			if found, err := p.describe(i, &scratch); err == nil && wanted[found.Name] {
				out = append(out, found)
			}
		})
		out = r.v.stillLive(out)
		return errors.Join(err, r.v.stale())
	})
	return out, err
}
