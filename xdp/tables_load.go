package xdp

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// A load exchanges all programs. Datapath.reload calls constants, loads and exchanges the programs, waits for a grace period, and calls
// finishLoad. In between, old and new programs run side by side.

// constants begins a load. It returns the constants of the next programs: the tuples to search, best first, and the layers to parse.
//
// Ranks belong to places, and a place may have one tuple in the old programs and another in the new ones. So constants sets all
// ranks to 0. Until finishLoad, programs look under all masks for every packet, which takes time and is always right.
func (t *tables) constants() constants {
	for i := range t.ranks {
		atomic.StoreUint64(&t.ranks[i], 0)
	}

	t.next = []*tuple{}
	t.nextNeed = t.wanted
	t.everyTuple(func(u *tuple) {
		if u.rules == 0 {
			return
		}
		t.nextNeed |= u.need
		if u.inTree() {
			t.nextNeed |= needTree
			return
		}
		u.best = t.bestRank(u)
		t.next = append(t.next, u)
	})
	slices.SortFunc(t.next, func(a, b *tuple) int {
		return cmp.Or(cmp.Compare(a.best, b.best), cmp.Compare(a.id, b.id))
	})

	c := constants{need: t.nextNeed}
	for _, u := range t.next {
		c.tuples = append(c.tuples, u.constants(t.secret, !u.hashed))
	}
	return c
}

// stay ends a load that has failed, if there is one. The attached programs and their places stay.
func (t *tables) stay() {
	if t.next != nil {
		t.next = nil
		t.setRanks()
	}
}

// finishLoad ends a load. All attached programs must have the constants returned by constants, and the old programs must have ended.
func (t *tables) finishLoad() {
	for _, u := range t.rehash {
		atomic.StoreUint64(&t.singles[u.id], 0)
	}
	t.rehash = nil

	t.places = t.next
	t.need = t.nextNeed
	t.next = nil
	t.everyTuple(func(u *tuple) {
		u.place = slices.Index(t.places, u)
		if u.place < 0 && u.rules == 0 {
			t.dropTuple(u)
		}
	})

	t.setRanks()
	t.entries.reclaim()
	t.forest.set.Reclaim()
}
