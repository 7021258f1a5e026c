package shm

import "errors"

// Find lists the live counters of those names, in the order of their indices. It skips names that no counter has. Use
// it for a single search: it reads no more than the names of the other entries. Lookup reads all entries once into a
// table for the next calls.
func (r *Reader) Find(names ...string) (out []Entry, err error) {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	err = r.guard(func() error {
		out, err = r.v.entries(wanted)
		return errors.Join(err, r.v.stale())
	})
	return out, err
}
