package xdp

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// entryOf finds a rule's place in its chain. Of rules of one key and rank, which a
// change that was cut short may leave, it is the one that has the counter and the action of r.
func (t *tables) entryOf(r *Rule) (u *tuple, key string, at int, ok bool) {
	for _, v := range t.tuplesOf(r) {
		if v == nil {
			continue
		}
		var buf keyBuffer
		k := string(bytesOf(v.keyOf(buf[:0], r)))
		c := v.chains[k]
		if c == nil {
			continue
		}
		first := t.placeIn(c, r.rank())
		for i := first; i < len(c.entries) && t.entries.rank(c.entries[i]) == r.rank(); i++ {
			if d := t.entries.dirWord(c.entries[i]); d.counter() == r.Counter && d.drop() == r.Drop {
				return v, k, i, true
			}
			if !ok {
				u, key, at, ok = v, k, first, true
			}
		}
	}
	return u, key, at, ok
}

// removeRule marks the entry dead first: after a crash the next process completes the removal.
func (t *tables) removeRule(r *Rule) {
	u, key, at, ok := t.entryOf(r)
	if !ok {
		return
	}
	t.keepOrder(u, r)
	c := u.chains[key]
	unit := c.entries[at]
	d := t.entries.dirWord(unit)
	t.entries.setDir(unit, d.with(entryDead))
	switch {
	case at > 0:
	case len(c.entries) > 1:
		t.replace(u, c, c.entries[0], c.entries[1])
	default:
		t.clear(u, c)
		delete(u.chains, key)
	}
	c.entries = slices.Delete(c.entries, at, at+1)
	t.entries.retire(unit)
	t.counted(u, d.counter(), -1)
	if u.rules == 0 {
		u.best = noRank
	}
	if u.inTree() && t.entries.rank(unit) == t.forest.best {
		t.forest.best = 0 // setRanks looks
	}
}

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

func (t *tables) rules() []Rule {
	all := make([]Rule, 0, t.count)
	t.everyTuple(func(u *tuple) {
		for _, c := range u.chains {
			for _, e := range c.entries {
				all = append(all, t.rule(u, e))
			}
		}
	})
	slices.SortFunc(all, func(a, b Rule) int { return cmp.Compare(a.rank(), b.rank()) })
	return all
}

func (t *tables) rule(u *tuple, unit uint32) Rule {
	d, rank := t.entries.dirWord(unit), t.entries.rank(unit)
	r := Rule{Priority: uint16(rank >> 32), Order: uint32(rank), Counter: d.counter(), Drop: d.drop()}
	if u.inTree() {
		t.entries.readTree(unit, &r)
		return r
	}
	*r.Mask.words() = u.mask
	packed := t.entries.packed(unit, len(u.word))
	for i, w := range u.word {
		r.Key.words()[w] = packed[i]
	}
	return r
}

func (t *tables) uses(counter uint32) bool { return t.refs[counter] != 0 }

func (t *tables) stats(s *Stats) {
	s.Rules, s.MaxRules, s.Built = t.count, t.g.rules, t.forest.set.Built()
	t.everyTuple(func(u *tuple) {
		if u.rules == 0 {
			return
		}
		s.Tuples++
		if !u.inTree() {
			s.Hashed++
		}
	})
}
