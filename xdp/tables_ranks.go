package xdp

import "sync/atomic"

// Programs look under the masks in the order of their places, then in the trees. Before each place they compare the rank of
// the rule that they have found with ranks[place], the best rank there or behind, and stop if nothing there can win. A
// rank that is too low costs a packet time; one that is too high would cost it its rule.

// setRanks writes the exact ranks. It comes after slots were taken away.
func (t *tables) setRanks() {
	if t.forest.best == 0 { // the best rule has gone
		t.forest.best = noRank
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

// lowerRanks lowers the ranks up to the place of u, so that programs do not stop before a new rule of this rank. Call it before
// the slot of the rule is written.
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
