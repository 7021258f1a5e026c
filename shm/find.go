package shm

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
)

// Find lists the live counters of those names, in the order of their indices; names that no counter has
// are left out. It is for one look: of the other entries it reads the name alone, where Lookup
// makes a table of all names for the looks to come.
func (r *Reader) Find(names ...string) ([]Entry, error) {
	if r.closed.Load() {
		return nil, ErrClosed
	}
	wanted := make(map[[nameSize]byte]bool, len(names))
	for _, name := range names {
		if len(name) < nameSize && strings.IndexByte(name, 0) < 0 {
			var field [nameSize]byte
			copy(field[:], name)
			wanted[field] = true
		}
	}
	var out []Entry
	err := Guard(func() error {
		var scratch entryMem
		err := r.v.eachUsed(func(i uint32, p place) {
			// A live entry does not change its name.
			e := p.entry()
			if atomic.LoadUint64(&e.identity)>>32 != entLive || !wanted[e.name] {
				return
			}
			if found, err := p.describe(i, &scratch); err == nil && wanted[scratch.name] {
				out = append(out, found)
			}
		})
		return errors.Join(err, r.v.stale())
	})
	runtime.KeepAlive(r)
	return out, err
}
