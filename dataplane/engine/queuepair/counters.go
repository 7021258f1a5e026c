package queuepair

import (
	"iter"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// Name returns "rdma". Name, Read and ReadTimed make a Set the poller's source of its counters, whose ids
// are indices into byID.
func (s *Set) Name() string { return "rdma" }

// Read fills dst[i] with the last sample of counter ids[i].
func (s *Set) Read(ids []uint32, dst []backend.Pair) error {
	for i, id := range ids {
		dst[i], _ = s.byID[id].last.Load()
	}
	return nil
}

// ReadTimed is Read, and also fills at[i] with the time of each sample.
func (s *Set) ReadTimed(ids []uint32, dst []backend.Pair, at []int64) error {
	for i, id := range ids {
		dst[i], at[i] = s.byID[id].last.Load()
	}
	return nil
}

// Counters yields the mirror's handle of each counter, in the order of their ids, and the base of its
// total. Call it after Start, which opens the entries.
func (s *Set) Counters() iter.Seq2[shm.Handle, backend.Pair] {
	return func(yield func(shm.Handle, backend.Pair) bool) {
		for _, c := range s.byID {
			if !yield(c.handle, c.base()) {
				return
			}
		}
	}
}

// HasCounter reports whether a completion counter has that name.
func (s *Set) HasCounter(name string) bool {
	return slices.ContainsFunc(s.byID, func(c *counter) bool { return c.cfg.Name == name })
}

// Entries returns the mirror's entries of the counters.
func (s *Set) Entries() (out []shm.Entry) {
	for _, q := range s.all {
		v := q.current()
		for _, c := range q.counters {
			e := q.entry(c)
			e.Handle = c.handle
			e.Source = v.source.String()
			e.ByteBasis = completionBasis
			e.Valid = v.lost == nil
			e.Stale = v.lost != nil

			q.mu.Lock()
			e.Continuity = c.continuity
			q.mu.Unlock()
			out = append(out, e)
		}
	}
	return out
}

// WriteAgain writes the state of every counter to the mirror. Callers need it after replacing the mirror's
// file while the queue pairs run.
func (s *Set) WriteAgain() {
	for _, q := range s.all {
		q.writeAgain()
	}
}
