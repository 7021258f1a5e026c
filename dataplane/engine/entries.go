package engine

import "github.com/flowtally/flowtally/shm"

// entries returns the entries of all counters. The catalogue needs them when it makes a damaged mirror again.
func (e *Engine) entries() []shm.Entry {
	out := append(e.pairs.Entries(), e.Set.Entries()...)
	add := func(c *flowState) {
		entry, lost := entryOf(c.Flow), c.isDown()
		entry.Handle = c.handle
		entry.Continuity = c.past
		entry.Source = c.source.String()
		entry.ByteBasis = c.basis
		entry.Valid = !lost
		entry.Stale = lost
		out = append(out, entry)
	}
	for _, c := range e.flows {
		add(c)
	}
	for _, c := range e.adding {
		if c.published() {
			add(c)
		}
	}
	return out
}
