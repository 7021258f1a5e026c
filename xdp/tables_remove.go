package xdp

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
)

// entryOf finds a rule's place in its chain.
func (t *tables) entryOf(r *Rule) (*tuple, string, int, bool) {
	u := t.tupleOf(r.Mask.words())
	if u == nil {
		return nil, "", 0, false
	}
	var buf words
	key := string(bytesOf(u.pack(buf[:0], r.Key.words())))
	c := u.chains[key]
	if c == nil {
		return nil, "", 0, false
	}
	at, ok := slices.BinarySearchFunc(c.entries, r.rank(), func(e uint32, rank uint64) int {
		return cmp.Compare(t.entries.rank(e), rank)
	})
	return u, key, at, ok
}

func (t *tables) remove(rules []Rule) error {
	for i := range rules {
		if _, _, _, ok := t.entryOf(&rules[i]); !ok {
			return fmt.Errorf("removing rule %d of %d: %w", i+1, len(rules), ErrNotFound)
		}
	}
	for i := range rules {
		t.removeRule(&rules[i])
	}
	t.setRanks()
	if t.entries.waiting > t.g.units/4 {
		return t.reclaim()
	}
	return nil
}

// removeRule marks the entry dead first: whoever takes up the maps after a
// crash ends what was begun.
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
		t.replace(u, c, c.entries[1])
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

// constants of the next load: the tuples with rules, best first, and what the
// parser must look at. From here until settle places mean two things, so every
// search goes through all of them.
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
		c.tuples = append(c.tuples, u.constants(!u.hashed))
	}
	return c
}

func (t *tables) settle() {
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
