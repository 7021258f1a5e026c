package xdp

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
)

// entryOf finds a rule's place in its chain. Of rules of one key and rank, which a
// change that was cut short may leave, it is the one that has the counter and the action of r.
func (t *tables) entryOf(r *Rule) (u *tuple, key string, at int, ok bool) {
	if u = t.tupleOf(r.Mask.words()); u == nil {
		return nil, "", 0, false
	}
	var buf words
	key = string(bytesOf(u.pack(buf[:0], r.Key.words())))
	c := u.chains[key]
	if c == nil {
		return nil, "", 0, false
	}
	first := t.placeIn(c, r.rank())
	for at = first; at < len(c.entries) && t.entries.rank(c.entries[at]) == r.rank(); at++ {
		if d := t.entries.dirWord(c.entries[at]); d.counter() == r.Counter && d.drop() == r.Drop {
			return u, key, at, true
		}
	}
	return u, key, first, at > first
}

// remove takes the rules that lose first, so that no packet is decided by one that loses before and after.
func (t *tables) remove(rules []Rule) error {
	for i := range rules {
		if _, _, _, ok := t.entryOf(&rules[i]); !ok {
			return fmt.Errorf("removing rule %d of %d: %w", i+1, len(rules), ErrNotFound)
		}
	}
	last := slices.Clone(rules)
	slices.SortStableFunc(last, func(a, b Rule) int { return cmp.Compare(b.rank(), a.rank()) })
	for i := range last {
		t.removeRule(&last[i])
	}
	t.setRanks()
	if t.entries.waiting > t.g.units/4 {
		return t.reclaim()
	}
	return nil
}

// removeRule marks the entry dead first: after a crash the next process completes the removal.
func (t *tables) removeRule(r *Rule) {
	u, key, at, ok := t.entryOf(r)
	if !ok {
		return
	}
	c := u.chains[key]
	unit := c.entries[at]
	d := t.entries.dirWord(unit)
	t.entries.setDir(unit, d&^0xff|entryDead)
	switch {
	case at > 0:
	case len(c.entries) > 1:
		t.replace(u, c.hash, c.entries[0], c.entries[1])
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
}

// constants returns the constants of the next load: the tuples with rules, best first, and the
// layers that the parser must read. From here until finishLoad a place has two meanings, so every
// search goes through all tuples.
func (t *tables) constants() constants {
	for i := range t.ranks {
		atomic.StoreUint64(&t.ranks[i], 0)
	}
	t.next, t.nextNeed = []*tuple{}, 0
	for _, u := range t.tuples {
		if u != nil && u.rules > 0 {
			u.best = t.bestRank(u)
			t.next = append(t.next, u)
			t.nextNeed |= u.need
		}
	}
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
	for _, u := range t.tuples {
		if u == nil {
			continue
		}
		u.place = slices.Index(t.places, u)
		if u.place < 0 && u.rules == 0 {
			t.dropTuple(u)
		}
	}
	t.setRanks()
	t.entries.reclaim()
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
	best := noRank
	for i := maxTuples - 1; i >= 0; i-- {
		if i < len(t.places) {
			best = min(best, t.places[i].best)
		}
		atomic.StoreUint64(&t.ranks[i], best)
	}
}

// lowerRanks comes before the slot of a rule of that rank: no search ends too early.
func (t *tables) lowerRanks(u *tuple, rank uint64) {
	u.best = min(u.best, rank)
	for i := 0; i <= u.place; i++ {
		if atomic.LoadUint64(&t.ranks[i]) > rank {
			atomic.StoreUint64(&t.ranks[i], rank)
		}
	}
}

func (t *tables) rules() []Rule {
	all := make([]Rule, 0, t.count)
	for _, u := range t.tuples {
		if u == nil {
			continue
		}
		for _, c := range u.chains {
			for _, e := range c.entries {
				all = append(all, t.rule(u, e))
			}
		}
	}
	slices.SortFunc(all, func(a, b Rule) int { return cmp.Compare(a.rank(), b.rank()) })
	return all
}

func (t *tables) rule(u *tuple, unit uint32) Rule {
	d, rank := t.entries.dirWord(unit), t.entries.rank(unit)
	r := Rule{Priority: uint16(rank >> 32), Order: uint32(rank), Counter: d.counter(), Drop: d.drop()}
	*r.Mask.words() = u.mask
	packed := t.entries.packed(unit, len(u.word))
	for i, w := range u.word {
		r.Key.words()[w] = packed[i]
	}
	return r
}

func (t *tables) uses(counter uint32) bool { return t.refs[counter] != 0 }

func (t *tables) stats(s *Stats) {
	s.Rules, s.MaxRules = t.count, t.g.rules
	for _, u := range t.tuples {
		if u != nil && u.rules > 0 {
			s.Tuples++
		}
	}
}
