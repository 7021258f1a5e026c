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

	// tombstone is a free slot at which a probe goes on: it is not 0, and has no tag.
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

// hashTable is the table of hashed keys that programs probe: open addressing, with one slot for each key. A probe looks at
// slotProbes slots in a row, from the home of the key on, and compares the entries of at most slotAttempts.
//
// There is one writer. Each change is a store of one word, behind which the table is right: programs find every key at every
// instant.
type hashTable struct {
	slots []uint64 // their number is a power of two
	mask  uint64   // their number less 1

	// hash returns the hash of the entry at a unit, for the entry to be moved.
	hash func(unit uint32) uint64

	// fence returns when every probe that was under way has ended. nil: the CPU keeps the loads of a probe in order.
	fence func()
}

func (t *hashTable) at(i uint64) uint64     { return atomic.LoadUint64(&t.slots[i&t.mask]) }
func (t *hashTable) set(i uint64, s uint64) { atomic.StoreUint64(&t.slots[i&t.mask], s) }

// find returns the position of the slot that leads to a unit. h is the hash of its key.
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

// unitOf returns the unit to which a slot leads that is not free.
func unitOf(s uint64) uint32 { return uint32(s >> unitShift & unitMask) }

// free reports whether a slot is empty or a tombstone. Every other slot has a tag that is not 0.
func free(s uint64) bool { return s>>tagShift == 0 }

// insert stores a slot within slotProbes of its home. It returns false if there is no place where programs would find it. h is
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

// insertFrom stores a slot although all places within slotProbes of its home are taken. gap is a free place farther on. It
// brings the gap nearer: a slot that lies before the gap, and may lie at the gap, is copied there, and its old place is the
// next gap. The copy is stored before the original is overwritten, and lies later in a probe. So a probe that has passed the
// place of the original meets the copy.
func (t *hashTable) insertFrom(h, gap, s uint64) bool {
	copied := false // gap holds the original of the slot that was copied last
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

// moveTo copies the first slot that may lie at gap to gap, and returns the place of the original.
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

// put stores a slot at i, unless so many slots near i have its tag that a probe could give up before it has compared them all.
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

// remove empties the slot at i. It leaves a tombstone, because a probe must go on to the slots behind. If the next place is
// empty, probes end there anyway: then the slot, and the tombstones before it, become empty.
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
