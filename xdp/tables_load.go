package xdp

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// constants returns the constants of the next load: the tuples with rules, best first, and the
// layers that the parser must read. From here until finishLoad a place has two meanings, so every
// search goes through all tuples.
func (t *tables) constants() constants {
	for i := range t.ranks {
		atomic.StoreUint64(&t.ranks[i], 0)
	}
	t.next, t.nextNeed = []*tuple{}, t.wanted
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

// finishLoad ends a load: all programs have the constants of the last call of constants.
func (t *tables) finishLoad() {
	for _, u := range t.rehash {
		atomic.StoreUint64(&t.singles[u.id], 0)
	}
	t.rehash = nil
	t.places, t.need, t.next = t.next, t.nextNeed, nil
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
