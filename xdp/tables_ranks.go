package xdp

import "sync/atomic"

// Programs search the masks in the order of their places, and the trees last. ranks[place] is the best rank at this place or any
// later one. A program stops there if it has already found a better rule. If a rank is too low, a packet loses time. If it
// were too high, a packet would miss its rule. So ranks are lowered before rules are added, and raised after rules are removed.

// setRanks stores the exact ranks. Call it after removing slots.
func (t *tables) setRanks() {
	if t.forest.bestGone {
		t.forest.best, t.forest.bestGone = noRank, false
		for _, u := range t.treeTuples {
			t.forest.best = min(t.forest.best, t.bestRank(u))
		}
	}

	best := t.forest.best
	for i := maxTuples; i >= 0; i-- {
		if i < len(t.places) {
			best = min(best, t.places[i].best)
		}
		atomic.StoreUint64(&t.ranks[i], best)
	}
}

// lowerRanks lowers the ranks up to the place of u, so that programs reach a new rule of this rank. Call it before storing the slot
// of the rule.
func (t *tables) lowerRanks(u *tuple, rank uint64) {
	u.best = min(u.best, rank)
	place := u.place
	if u.inTree() {
		t.forest.best = min(t.forest.best, rank)
		place = maxTuples
	}
	for i := 0; i <= place; i++ {
		if atomic.LoadUint64(&t.ranks[i]) > rank {
			atomic.StoreUint64(&t.ranks[i], rank)
		}
	}
}

// bestRank returns the rank of the best rule of a tuple.
func (t *tables) bestRank(u *tuple) uint64 {
	best := noRank
	for _, c := range u.chains {
		best = min(best, t.entries.rank(c.entries[0]))
	}
	return best
}
