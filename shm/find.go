package shm

import "errors"

// Find lists the live counters of those names in the order of their indices, and leaves out names that no counter has.
// It is for one look: of all other entries it reads the name alone, while Lookup makes a table of all names for the
// looks to come.
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
