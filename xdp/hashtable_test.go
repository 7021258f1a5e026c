package xdp

import (
	"fmt"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

// fakeSlots is a table whose entries are nothing but their hashes.
func fakeSlots(n int, hashes []uint64) *hashTable {
	return &hashTable{slots: make([]uint64, n), mask: uint64(n - 1), hash: func(u uint32) uint64 { return hashes[u] }}
}

// probeSlots is FT_FIND of bpf/tables.h with an entry's unit for its key.
func probeSlots(t *hashTable, h uint64, unit uint32) bool {
	pos := h
	for range slotAttempts {
		found := false
		for range slotProbes {
			s := t.at(pos)
			pos++
			if s == 0 {
				return false
			}
			if s>>tagShift == tagOf(h) {
				if unitOf(s) == unit {
					return true
				}
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return false
}

// check says whether every unit of live, and no other, is where the packet path finds it, once.
func checkSlots(t *hashTable, hashes []uint64, live map[uint32]bool) error {
	count := 0
	for i := range t.slots {
		if s := t.slots[i]; !free(s) {
			count++
			if !live[unitOf(s)] {
				return fmt.Errorf("slot %d points at unit %d, which is not live", i, unitOf(s))
			}
		}
	}
	if count != len(live) {
		return fmt.Errorf("%d slots are taken by %d entries", count, len(live))
	}
	for u := range live {
		if !probeSlots(t, hashes[u], u) {
			return fmt.Errorf("unit %d is not found", u)
		}
	}
	return nil
}

func TestHashTableTakesTheMostRules(t *testing.T) {
	rng := seed.Rand(t)
	const n = 1 << 16
	hashes := make([]uint64, n+1)
	live := map[uint32]bool{}
	for i := range hashes {
		hashes[i] = rng.Uint64()
	}
	tab := fakeSlots(2*n, hashes)
	for u := uint32(1); u <= n; u++ {
		if !tab.insert(hashes[u], slotOf(u, 0, false, tagOf(hashes[u]))) {
			t.Fatalf("entry %d found no slot", u)
		}
		live[u] = true
	}
	if err := checkSlots(tab, hashes, live); err != nil {
		t.Fatal(err)
	}
}

func TestHashTableFindsEveryKeyUnderChurn(t *testing.T) {
	rng := seed.Rand(t)
	const n, max = 256, 140
	hashes := make([]uint64, 4096)
	for i := range hashes {
		// Few homes, so that probes are long and entries move; few tags, so that they collide.
		hashes[i] = uint64(rng.IntN(6))<<61 | uint64(rng.IntN(64))
	}
	tab := fakeSlots(n, hashes)
	live := map[uint32]bool{}
	refused := 0
	for step := range 60_000 {
		u := uint32(1 + rng.IntN(len(hashes)-1))
		switch {
		case live[u]:
			i, ok := tab.find(hashes[u], u)
			if !ok {
				t.Fatalf("step %d: unit %d is not found", step, u)
			}
			tab.remove(i)
			delete(live, u)
		case len(live) < max:
			if tab.insert(hashes[u], slotOf(u, 0, false, tagOf(hashes[u]))) {
				live[u] = true
			} else {
				refused++
			}
		}
		if step%16 == 0 {
			if err := checkSlots(tab, hashes, live); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
	}
	if refused == 0 {
		t.Error("no insertion was refused: the test does not reach the limit of a tag")
	}
}
