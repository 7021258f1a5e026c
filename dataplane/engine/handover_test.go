package engine

import (
	"math"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// Each row of the table in docs/architecture.md, "How a total goes on".
func TestATotalGoesOnInAnotherSlot(t *testing.T) {
	pair := func(packets uint64) backend.Pair { return backend.Pair{Packets: packets, Bytes: 100 * packets} }
	for _, c := range []struct {
		name         string
		h            handover
		total        backend.Pair
		exact, lacks bool
	}{
		{"no other slot has counted it", handover{last: pair(10), sameBytes: true}, pair(10), false, true},
		{"a slot has seen every packet", handover{last: pair(10), bySlot: pair(12), complete: true, sameBytes: true}, pair(12), true, false},
		{"its bytes are of another basis", handover{last: pair(10), bySlot: pair(12), complete: true}, pair(12), false, false},
		{"packets pass meanwhile", handover{last: pair(10), bySlot: pair(12), complete: true, passed: 1, sameBytes: true}, pair(12), false, true},
		{"the slot has missed packets, and stands higher", handover{last: pair(10), bySlot: pair(12), sameBytes: true}, pair(12), false, true},
		{"the slot has missed packets, and stands lower", handover{last: pair(10), bySlot: pair(9), sameBytes: true}, pair(10), false, true},
		{"packets reach the slot late, or never", handover{last: pair(10), bySlot: pair(9), complete: true, sameBytes: true}, pair(10), false, true},
		{"the slot was emptied", handover{last: pair(10), bySlot: backend.Sub(pair(0), pair(5)), complete: true, sameBytes: true}, pair(10), false, true},
		{
			"only its bytes stand lower",
			handover{last: backend.Pair{Packets: 10, Bytes: 1040}, bySlot: pair(10), complete: true},
			backend.Pair{Packets: 10, Bytes: 1040}, false, false,
		},
		{"nothing was counted yet", handover{complete: true, sameBytes: true}, pair(0), true, false},
		{"a high total", handover{last: pair(math.MaxInt64 / 100), bySlot: pair(math.MaxInt64/100 + 1), complete: true, sameBytes: true}, pair(math.MaxInt64/100 + 1), true, false},
	} {
		total, exact, lacks := c.h.total()
		if total != c.total || exact != c.exact || lacks != c.lacks {
			t.Errorf("%s: %+v exact %t lacks %t, want %+v %t %t", c.name, total, exact, lacks, c.total, c.exact, c.lacks)
		}
	}
}
