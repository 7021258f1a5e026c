package xdp

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// A mark changes exactly if one of its counters was updated, on any CPU, and no mark changes for another's.
func TestMarksTellWhichCountersChanged(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, cpus := range []int{1, 2, 3, 64} {
		const counters = 512
		s, err := NewSimulated(counters, cpus)
		if err != nil {
			t.Fatal(err)
		}
		was, now := make([]uint32, counters/Marked), make([]uint32, counters/Marked)
		if err := s.Marks(make([]uint32, len(now)+1)); !errors.Is(err, ErrNotFound) {
			t.Errorf("%d CPUs: marks of counters that are not there: %v", cpus, err)
		}
		for round := range 200 {
			updated := make([]bool, len(now))
			for range rng.IntN(6) {
				id := rng.Uint32N(counters)
				s.Update(rng.IntN(cpus), id, 1+rng.Uint64N(255), 60)
				updated[id/Marked] = true
			}
			few := now[:1+rng.IntN(len(now))]
			if err := s.Marks(few); err != nil {
				t.Fatal(err)
			}
			for i, m := range few {
				if (m != was[i]) != updated[i] {
					t.Fatalf("%d CPUs, round %d: mark %d was %d, is %d; updated: %t", cpus, round, i, was[i], m, updated[i])
				}
			}
			if err := s.Marks(was); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
