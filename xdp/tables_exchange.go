package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// move makes a rule another one of its key, mask and counter: only its rank and its action change.
type move struct{ from, to *Rule }

// pair finds the rules of old whose entries can become rules of fresh in their
// places. gone and added are the others. From here until done, the entries of old
// take no rank from a rule of fresh.
func (t *tables) pair(old, fresh []Rule) (moves []move, gone, added []Rule, err error) {
	type group struct{ old, fresh []*Rule }
	type keyOf struct {
		u   *tuple
		key string
	}
	groups := make(map[keyOf]*group, len(old))
	for i := range old {
		u, key, at, ok := t.entryOf(&old[i])
		if !ok {
			return nil, nil, nil, fmt.Errorf("exchanging rule %d of %d: %w", i+1, len(old), ErrNotFound)
		}
		g := groups[keyOf{u, key}]
		if g == nil {
			g = &group{}
			groups[keyOf{u, key}] = g
		}
		g.old = append(g.old, &old[i])
		t.leaving[u.chains[key].entries[at]] = true
	}
	for i := range fresh {
		r := &fresh[i]
		var g *group
		var key string
		for _, v := range t.tuplesOf(r) {
			if v != nil && g == nil {
				var buf keyBuffer
				key = string(bytesOf(v.keyOf(buf[:0], r)))
				g = groups[keyOf{v, key}]
			}
		}
		if g == nil {
			added = append(added, *r)
			continue
		}
		if slices.ContainsFunc(g.fresh, func(o *Rule) bool { return o.rank() == r.rank() }) {
			return nil, nil, nil, existsError()
		}
		g.fresh = append(g.fresh, r)
		at := slices.IndexFunc(g.old, func(o *Rule) bool { return o.Counter == r.Counter })
		if at < 0 {
			added = append(added, *r)
			continue
		}
		for _, v := range t.tuplesOf(r) {
			if err := t.vacant(v, r); err != nil {
				return nil, nil, nil, err
			}
		}
		moves = append(moves, move{g.old[at], r})
		g.old = slices.Delete(g.old, at, at+1)
	}
	for _, g := range groups {
		for _, o := range g.old {
			gone = append(gone, *o)
		}
	}
	return moves, gone, added, nil
}

// done ends the split that pair began.
func (t *tables) done() { clear(t.leaving) }

func existsError() error {
	return fmt.Errorf("adding a rule: %w: one with this key, mask, priority and order", ErrExists)
}

// vacant says whether no entry of a tuple has the key and the rank of r, apart from those that are leaving.
func (t *tables) vacant(u *tuple, r *Rule) error {
	if u == nil {
		return nil
	}
	var buf keyBuffer
	c := u.chains[string(bytesOf(u.keyOf(buf[:0], r)))]
	if c == nil {
		return nil
	}
	for _, e := range c.entries[t.placeIn(c, r.rank()):] {
		if t.entries.rank(e) != r.rank() {
			break
		}
		if !t.leaving[e] {
			return existsError()
		}
	}
	return nil
}

const (
	carefulMoves = 512 // most moves of one call for which move waits for grace periods
	carefulWaits = 32  // most grace periods of one call
)

// move moves rules in an order in which, of two rules that keep their order, the
// one that wins does so at every instant: those that win more than before come first, best
// first; then those that win less, best last. A packet that has met the one as it was
// and meets the other as it is could still see them the other way round. Of few moves,
// as of a configuration that a person wrote, a grace period keeps such two apart.
func (t *tables) move(moves []move) {
	slices.SortStableFunc(moves, func(a, b move) int {
		if a.raises() != b.raises() {
			if a.raises() {
				return 1
			}
			return -1
		}
		if a.raises() {
			a, b = b, a
		}
		return cmp.Compare(a.to.rank(), b.to.rank())
	})
	raised := map[*tuple]bool{}
	since, waits := 0, 0 // the first move that a packet may still have met before it
	for i, m := range moves {
		if len(moves) <= carefulMoves && waits < carefulWaits && slices.ContainsFunc(moves[since:i], m.crosses) {
			if t.grace() != nil {
				waits = carefulWaits // go on without waiting: half of the moves would be worse
			}
			since, waits = i, waits+1
		}
		if u := t.moveRule(m); u != nil && m.raises() {
			raised[u] = true
		}
	}
	for u := range raised {
		u.best = t.bestRank(u)
	}
	if len(raised) > 0 {
		t.setRanks()
	}
}

// crosses reports whether a packet that matches both rules sees a third order if it has met o
// before its move and m behind its own.
func (m move) crosses(o move) bool {
	if m.raises() == (m.to.rank() < o.from.rank()) {
		return false
	}
	mk, mm, ok, om := m.to.Key.words(), m.to.Mask.words(), o.to.Key.words(), o.to.Mask.words()
	for w := range mk {
		if (mk[w]^ok[w])&mm[w]&om[w] != 0 {
			return false
		}
	}
	return true
}

// raises says whether the rule wins over fewer rules than before.
func (m move) raises() bool { return m.to.rank() > m.from.rank() }

// moveRule changes an entry that programs may read. Its directory word, which commits the action,
// comes first. The slot, one store, and the rank, another, decide a packet.
func (t *tables) moveRule(m move) *tuple {
	u, key, at, ok := t.entryOf(m.from)
	if !ok {
		return nil
	}
	c, rank := u.chains[key], m.to.rank()
	unit, head := c.entries[at], c.entries[0]
	delete(t.leaving, unit)
	if u.inTree() {
		if err := t.moveInTree(u, c, at, m.to); err != nil {
			t.log.Error("giving a rule another rank", "error", err)
		}
		return u
	}
	d := t.entries.dirWord(unit)
	t.entries.setDir(unit, newDirWord(d.state(), d.tuple(), d.size(), m.to.Drop, d.counter()))
	t.lowerRanks(u, rank)
	c.entries = slices.Delete(c.entries, at, at+1)
	place := t.placeIn(c, rank)
	if unit == head && place > 0 { // while it has the rank by which it won
		t.replace(u, c, head, c.entries[0])
	}
	atomic.StoreUint64(&t.entries.ranks[unit], rank)
	c.entries = slices.Insert(c.entries, place, unit)
	if place == 0 {
		t.replace(u, c, head, unit)
	}
	return u
}

// moveInTree gives a rule of a chain another rank, in an entry of its own.
func (t *tables) moveInTree(u *tuple, c *chain, at int, to *Rule) error {
	old := c.entries[at]
	unit, err := t.newEntry(u, to, nil)
	if err != nil {
		return err
	}
	t.lowerRanks(u, to.rank())
	before := slices.Clone(c.entries)
	c.entries = slices.Delete(c.entries, at, at+1)
	c.entries = slices.Insert(c.entries, t.placeIn(c, to.rank()), unit)
	t.forest.touch(c)
	if err := t.forest.flush(); err != nil {
		c.entries = before
		t.dropEntry(unit)
		return errors.Join(err, t.forest.flush())
	}
	if t.entries.rank(old) == t.forest.best {
		t.forest.best = 0
	}
	t.entries.setDir(old, t.entries.dirWord(old)&^0xff|entryDead)
	t.entries.retire(old)
	return nil
}
