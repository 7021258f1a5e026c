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

	// tombstone has no tag. It is not 0, so a probe goes on.
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

// hashTable is the open-addressing table that the programs probe. Stores are
// single words, each of which leaves the table right: a key that is in it is
// found at every instant. There is one writer.
type hashTable struct {
	slots []uint64 // a power of two
	mask  uint64
	// hash gives the hash of the entry at a unit, to move it.
	hash func(unit uint32) uint64
	// fence returns when every probe that was under way has ended, where loads
	// of a probe may be seen out of order; nil where they may not.
	fence func()
}

func (t *hashTable) at(i uint64) uint64     { return atomic.LoadUint64(&t.slots[i&t.mask]) }
func (t *hashTable) set(i uint64, s uint64) { atomic.StoreUint64(&t.slots[i&t.mask], s) }

// find is the position of the slot that points at unit, whose hash is h.
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

// unitOf is the unit that a slot points at, if it is not free.
func unitOf(s uint64) uint32 { return uint32(s >> unitShift & unitMask) }

// free says whether a slot is empty or a tombstone: it has no tag, as no other slot has.
func free(s uint64) bool { return s>>tagShift == 0 }

// insert stores s, whose hash is h, within slotProbes of its home. It reports
// false when there is no place that the packet path would find.
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

// insertFrom stores s although every slot in reach of its home is taken, given
// a free one farther on. The gap is moved nearer: an entry between it and here
// that may lie there goes there. The copy is stored before the original is
// overwritten, and later in the probe: a probe that has passed the one finds the other.
func (t *hashTable) insertFrom(h, gap, s uint64) bool {
	copied := false // gap still holds the original of the entry moved last
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

// moveTo copies to gap the first entry before it that may lie there, and returns where that was.
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

// put stores s at i, unless so many slots near it have its tag that a probe
// could give up before it has compared them all.
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

// remove empties slot i. It becomes a tombstone, unless nothing lies behind
// it: then it and the tombstones before it end probes again.
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
