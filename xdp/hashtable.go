package xdp

import "sync/atomic"

// Constants of slots, as in bpf/tables.h.
const (
	slotProbes   = 32
	slotAttempts = 4

	dropBit      = 1
	unitShift    = 4
	unitMask     = 1<<24 - 1
	counterShift = 29
	tagShift     = 49

	// tombstone marks a free slot that does not end a probe.
	tombstone = 1 << 1
)

func tagOf(hash uint64) uint64 { return hash>>tagShift | 1 }

func slotOf(unit, counter uint32, drop bool, tag uint64) uint64 {
	s := uint64(unit)<<unitShift | uint64(counter)<<counterShift | tag<<tagShift
	if drop {
		s |= dropBit
	}
	return s
}

// hashTable is the open-addressed hash table that programs probe. It has one slot per key. A probe looks at slotProbes adjacent
// slots, beginning at the home of the key. It compares the entries of at most slotAttempts slots, those with the tag of its hash.
//
// The table has one writer. Each of its stores leaves the table correct, so programs find every key at every instant.
type hashTable struct {
	slots []uint64 // a power of two
	mask  uint64   // len(slots)-1

	// hash returns the hash of an entry. The writer needs it to move the entry to another slot.
	hash func(unit uint32) uint64

	// fence waits for all probes under way. It is nil on CPUs that execute the loads of a probe in order.
	fence func()
}

func (t *hashTable) at(i uint64) uint64     { return atomic.LoadUint64(&t.slots[i&t.mask]) }
func (t *hashTable) set(i uint64, s uint64) { atomic.StoreUint64(&t.slots[i&t.mask], s) }

// find returns the position of the slot of a unit. h is the hash of its key.
func (t *hashTable) find(h uint64, unit uint32) (uint64, bool) {
	h &= t.mask
	for i := h; i < h+slotProbes; i++ {
		s := t.at(i)
		if s == 0 {
			return 0, false
		}
		if !free(s) && unitOf(s) == unit {
			return i & t.mask, true
		}
	}
	return 0, false
}

// unitOf returns the unit in a slot. The slot must not be free.
func unitOf(s uint64) uint32 { return uint32(s >> unitShift & unitMask) }

// free reports whether a slot is empty or a tombstone. Tags of used slots are never 0.
func free(s uint64) bool { return s>>tagShift == 0 }

// insert stores a slot where programs will find it, within slotProbes of its home. It returns false if there is no such place. h is
// the hash of its key.
func (t *hashTable) insert(h, s uint64) bool {
	h &= t.mask
	for i := h; i < h+slotProbes; i++ {
		if free(t.at(i)) {
			return t.put(i, s)
		}
	}

	gap := h + slotProbes
	for limit := h + uint64(len(t.slots))/2; !free(t.at(gap)); gap++ {
		if gap == limit {
			return false
		}
	}
	return t.insertFrom(h, gap, s)
}

// insertFrom stores a slot although all places within slotProbes of its home are taken. gap is a free place further on. insertFrom
// moves the gap towards the home: it copies an earlier slot into the gap, and the place of that slot becomes the next gap.
//
// A probe never misses the slot being moved. The copy is stored before anything overwrites the original, and a probe reads the
// original before the copy.
func (t *hashTable) insertFrom(h, gap, s uint64) bool {
	copied := false // gap still holds the original of the last copy
	for gap >= h+slotProbes {
		from, ok := t.moveTo(gap)
		if !ok {
			break
		}
		gap, copied = from, true
		if t.fence != nil {
			t.fence()
		}
	}
	if gap < h+slotProbes && t.put(gap, s) {
		return true
	}
	if copied {
		t.set(gap, tombstone)
	}
	return false
}

// moveTo copies a slot to gap, the first whose home is near enough. It returns the place of the original.
func (t *hashTable) moveTo(gap uint64) (uint64, bool) {
	for i := gap - slotProbes + 1; i < gap; i++ {
		s := t.at(i)
		if free(s) {
			continue
		}
		home := t.hash(unitOf(s))
		if (gap-home)&t.mask < slotProbes && t.put(gap, s) {
			return i, true
		}
	}
	return 0, false
}

// put stores a slot at i. It refuses if too many nearby slots have the same tag, because a probe stops after slotAttempts of them.
func (t *hashTable) put(i, s uint64) bool {
	same := 0
	for j := i - slotProbes + 1; j != i+slotProbes; j++ {
		if o := t.at(j); j != i && !free(o) && o>>tagShift == s>>tagShift {
			same++
		}
	}
	if same >= slotAttempts {
		return false
	}
	t.set(i, s)
	return true
}

// remove frees the slot at i. It leaves a tombstone, so that probes continue to the slots after it. If the next slot is empty, probes
// end there anyway. Then remove also empties the slot itself and the tombstones just before it.
func (t *hashTable) remove(i uint64) {
	if t.at(i+1) != 0 {
		t.set(i, tombstone)
		return
	}
	t.set(i, 0)
	for i--; t.at(i) == tombstone; i-- {
		t.set(i, 0)
	}
}
