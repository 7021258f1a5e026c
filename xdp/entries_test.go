package xdp

import (
	"testing"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

func TestEntryStoreNeverOverlaps(t *testing.T) {
	rng := seed.Rand(t)
	const units = 512
	s := newEntryStore(make([]uint64, rankAt(units)+units), make([]uint64, units), units)
	owner := make([]uint32, units)
	live := map[uint32]int{}
	full := 0
	for range 100_000 {
		if rng.IntN(2) == 0 {
			n := 1 + rng.IntN(5)
			u, ok := s.alloc(n, 1)
			if !ok {
				full++
				continue
			}
			for i := u; i < u+uint32(n); i++ {
				if owner[i] != 0 {
					t.Fatalf("unit %d given out twice", i)
				}
				owner[i] = u + 1
			}
			s.setDir(u, newDirWord(entryLive, 0, uint8(n), false, 0))
			live[u] = n
			continue
		}
		for u, n := range live {
			s.retire(u)
			if rng.IntN(8) == 0 {
				s.reclaim()
			}
			for i := u; i < u+uint32(n); i++ {
				owner[i] = 0
			}
			if len(s.retired) > 0 {
				s.reclaim()
			}
			delete(live, u)
			break
		}
	}
	if full == 0 {
		t.Error("the store was never full")
	}
	want := units
	for _, n := range live {
		want -= n
	}
	if s.free != want {
		t.Errorf("free units: got %d, want %d", s.free, want)
	}
}
