package xdp

import "sync/atomic"

// bestRank is the rank of the best rule of a tuple.
func (t *tables) bestRank(u *tuple) uint64 {
	best := noRank
	for _, c := range u.chains {
		best = min(best, t.entries.rank(c.entries[0]))
	}
	return best
}

// setRanks writes for every place the best rank there or behind, at which the
// search ends. It comes after slots were taken away.
func (t *tables) setRanks() {
	if t.forest.best == 0 {
		t.forest.best = noRank
		for _, u := range t.treed {
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

// lowerRanks comes before the slot of a rule of that rank: no search ends too early.
func (t *tables) lowerRanks(u *tuple, rank uint64) {
	u.best = min(u.best, rank)
	place := u.place
	if u.inTree() {
		t.forest.best, place = min(t.forest.best, rank), maxTuples
	}
	for i := 0; i <= place; i++ {
		if atomic.LoadUint64(&t.ranks[i]) > rank {
			atomic.StoreUint64(&t.ranks[i], rank)
		}
	}
}
