package shm

import (
	"bytes"
	"errors"
	"runtime"
	"sync/atomic"
)

// Find lists the live counters of those names, in the order of their indices; names that no counter has
// are left out. It is for one look: of the other entries it reads the name alone, where Lookup
// makes a table of all names for the looks to come.
func (r *Reader) Find(names ...string) ([]Entry, error) {
	if r.closed.Load() {
		return nil, ErrClosed
	}
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	var out []Entry
	err := Guard(func() error {
		var scratch entryMem
		err := r.v.eachUsed(func(i uint32, p place) {
			// A live entry does not change its name.
			e := p.entry()
			if atomic.LoadUint64(&e.identity)>>32 != entLive || !wanted[string(field(&e.name))] {
				return
			}
			if found, err := p.describe(i, &scratch); err == nil && wanted[found.Name] {
				out = append(out, found)
			}
		})
		return errors.Join(err, r.v.stale())
	})
	runtime.KeepAlive(r)
	return out, err
}

// field is a name up to its NUL, in place.
func field(name *[nameSize]byte) []byte {
	if n := bytes.IndexByte(name[:], 0); n >= 0 {
		return name[:n]
	}
	return name[:]
}
