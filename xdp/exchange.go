package xdp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// move makes a rule another one of its key, mask and counter: only its rank and its action change. A rule that is added
// has no from, and a rule that is removed has no to.
type swap struct{ from, to *Rule }

// raises reports whether the rule wins over fewer rules than before.
func (m swap) raises() bool {
	return m.to == nil || m.from != nil && m.to.rank() > m.from.rank()
}

// stays reports whether the rule exists before and after the move.
func (m swap) stays() bool { return m.from != nil && m.to != nil }

// place is the place of a move among those that raise, or among the others.
func (m swap) place() uint64 {
	if m.raises() {
		return ^m.from.rank()
	}
	return m.to.rank()
}

// pair finds the rules of old whose entries can become rules of fresh in their places. The others are removed and added.
// leave has the moves that raise, and come the others. From here until done, the entries of old take no rank from a rule of fresh.
func (t *tables) pair(old, fresh []Rule) (come, leave []swap, err error) {
	t.found = false
	type group struct{ old, fresh []*Rule }
	type keyOf struct {
		u   *tuple
		key string
	}
	groups := make(map[keyOf]*group, len(old))
	for i := range old {
		u, key, at, ok := t.entryOf(&old[i])
		if !ok {
			return nil, nil, fmt.Errorf("exchanging rule %d of %d: %w", i+1, len(old), ErrNotFound)
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
			come = append(come, swap{nil, r})
			continue
		}
		if slices.ContainsFunc(g.fresh, func(o *Rule) bool { return o.rank() == r.rank() }) {
			return nil, nil, existsError()
		}
		g.fresh = append(g.fresh, r)
		at := slices.IndexFunc(g.old, func(o *Rule) bool { return o.Counter == r.Counter })
		if at < 0 {
			come = append(come, swap{nil, r})
			continue
		}
		for _, v := range t.tuplesOf(r) {
			if err := t.vacant(v, r); err != nil {
				return nil, nil, err
			}
		}
		if m := (swap{g.old[at], r}); m.raises() {
			leave = append(leave, m)
		} else {
			come = append(come, m)
		}
		g.old = slices.Delete(g.old, at, at+1)
	}
	for _, g := range groups {
		for _, o := range g.old {
			leave = append(leave, swap{o, nil})
		}
	}
	return come, leave, nil
}

// done ends the split that pair began.
func (t *tables) done() { clear(t.leaving) }

const (
	carefulSwaps = 512 // most moves of a change that keeps to the order of run
	carefulWaits = 32  // most grace periods of one call
	carefulLoads = 4   // most loads of one call for the order: the last one ends it
)

// come carries out moves by which rules win over more rules than before, all or none. If the process dies before commit, the
// next one drops the added rules, and needs no room for them. If ctx ends first, come takes the moves back and returns the
// error of ctx. The error satisfies ErrUndone if programs may have found a rule before it was taken back.
func (t *tables) come(ctx context.Context, moves []swap) error {
	t.store.setUnderWay(rulesComing, true)
	defer t.commit()

	t.forest.set.Stop = ctx.Err

	if !t.unhashed && len(moves) > 0 {
		t.chosen = choose(t, moves)
	}
	for _, m := range moves {
		t.wanted |= needOf(m.to)
	}
	defer func() { t.wanted = 0 }()

	n, err := t.run(moves)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && len(t.unloaded) > 0 {
		err = t.load()
	}

	t.forest.set.Stop = nil // abandon goes on to its end
	if err == nil {
		return nil
	}
	if t.found {
		err = fmt.Errorf("%w; %w", err, ErrUndone)
	}
	t.abandon(moves[:n])
	return err
}

// commit ends come. Its one store to the header commits all added rules: from there on recover takes their entries for live.
// After abandon none of them is left.
func (t *tables) commit() {
	t.store.setUnderWay(rulesComing, false)
	for _, unit := range t.coming {
		if d := t.entries.dirWord(unit); d.state() == entryComing {
			t.entries.setDir(unit, d.with(entryLive))
		}
	}
	t.coming = t.coming[:0]
}

// leave carries out moves by which rules win over fewer rules than before.
func (t *tables) leave(moves []swap) error {
	if _, err := t.run(moves); err != nil || len(moves) == 0 {
		return err
	}
	t.setRanks()
	if t.entries.waiting > t.g.units/4 {
		return t.reclaim()
	}
	return nil
}

// run carries out moves that all raise, or none of which does, up to an error, and returns their number. If they raise, the
// rule that lost comes first, otherwise the rule that will win. So at each instant a packet is decided by the rule that wins
// before all moves or by the one that wins after them. For that, programs find a rule before another one moves that a
// packet may match too: await and keepOrder load programs and change trees in between. A packet that has met one rule as
// it was, and meets another one as it is, could still see a third order: a grace period keeps such two apart. The rules of a
// change larger than those that a person writes do not wait for one another, and trees take them together.
func (t *tables) run(moves []swap) (done int, err error) {
	t.pending, t.unloaded, t.loads = nil, nil, 0
	if len(moves) <= carefulSwaps && len(t.hooks) > 0 {
		t.loads = carefulLoads
	}
	first := 0
	if t.loads > 0 {
		slices.SortStableFunc(moves, func(a, b swap) int { return cmp.Compare(a.place(), b.place()) })
	} else if first = t.treesFirst(moves); first > 0 {
		// The trees may refuse their rules, or take long: until they have them, no packet sees a part of the change.
		if done, err := t.addToTrees(moves[:first]); err != nil {
			return done, err
		}
	}
	raised := map[*tuple]bool{}
	since, waits := 0, 0 // the first move that a packet may still have met before it
	for i := first; i < len(moves); i++ {
		m := moves[i]
		if m.to == nil {
			t.removeRule(m.from)
			continue
		}
		if err := t.stopped(); err != nil {
			return i, err
		}
		if m.from == nil {
			if err := t.add(m.to); err != nil {
				return i, err
			}
			continue
		}
		if err := t.await(m.to); err != nil {
			return i, err
		}
		if len(moves) <= carefulSwaps && waits < carefulWaits && slices.ContainsFunc(moves[since:i], m.crosses) {
			if t.grace() != nil {
				waits = carefulWaits // go on without waiting: half of the moves would be worse
			}
			since, waits = i, waits+1
		}
		t.found = true
		if u := t.moveRule(m); u != nil && m.raises() {
			raised[u] = true
		}
	}
	for u := range raised {
		u.best = t.bestRank(u)
	}
	return len(moves), t.changeTrees(len(moves))
}

// stopped returns the error of the context of come, or nil.
func (t *tables) stopped() error {
	if stop := t.forest.set.Stop; stop != nil {
		return stop()
	}
	return nil
}

// changeTrees gives the trees the rules of a change of so many rules.
func (t *tables) changeTrees(rules int) error {
	changes := len(t.forest.changed) > 0
	if err := t.forest.flush(); err != nil {
		return fmt.Errorf("changing %d rules: %w", rules, err)
	}
	t.found = t.found || changes && t.need&needTree != 0
	return nil
}

// treesFirst sorts the moves of a change that keeps to no order: rules that come into the trees, whose number it returns,
// rules that stay, and the others.
func (t *tables) treesFirst(moves []swap) (inTrees int) {
	step := make(map[swap]int, len(moves))
	for _, m := range moves {
		switch {
		case m.stays():
			step[m] = 1
		case m.to == nil || !t.goesIntoTrees(m.to):
			step[m] = 2
		default:
			inTrees++
		}
	}
	slices.SortStableFunc(moves, func(a, b swap) int {
		return cmp.Or(cmp.Compare(step[a], step[b]), cmp.Compare(a.place(), b.place()))
	})
	return inTrees
}

// addToTrees adds rules, up to an error, and returns their number. Programs find them once the trees have all of them.
func (t *tables) addToTrees(moves []swap) (done int, err error) {
	for i, m := range moves {
		err := t.stopped()
		if err == nil {
			err = t.add(m.to)
		}
		if err != nil {
			return i, err
		}
	}
	return len(moves), t.changeTrees(len(moves))
}

// await loads programs before those that run find r as it will be, if they do not read all fields of r, or if a packet may
// match both r and a rule that programs find only after a load.
func (t *tables) await(r *Rule) error {
	if needOf(r)&^t.need == 0 {
		if t.loads == 0 || !slices.ContainsFunc(t.unloaded, r.Overlaps) {
			return nil
		}
		t.loads--
	}
	t.unloaded = nil
	if err := t.changeTrees(len(t.coming)); err != nil {
		return err
	}
	if err := t.load(); err != nil {
		return err
	}
	t.found = t.found || len(t.coming) > 0
	return nil
}

// keepOrder notes that the trees are to change for r, a rule of u. If r is not in the trees, it changes them first, if a packet
// may match both r and a rule of that change. An error comes again at the end of run.
func (t *tables) keepOrder(u *tuple, r *Rule) {
	switch {
	case t.loads == 0:
	case u.inTree():
		t.pending = append(t.pending, r)
	case slices.ContainsFunc(t.pending, r.Overlaps):
		t.pending = nil
		t.changeTrees(len(t.coming))
	}
}

// crosses reports whether a packet that matches both rules sees a third order if it has met o
// before its move and m behind its own.
func (m swap) crosses(o swap) bool {
	return o.stays() && m.raises() != (m.to.rank() < o.from.rank()) && m.to.Overlaps(o.to)
}

// abandon takes changes of come back, and with them tuples that no program knows.
func (t *tables) abandon(moves []swap) {
	for _, m := range slices.Backward(moves) {
		if m.from == nil {
			t.removeRule(m.to)
		} else {
			t.moveRule(swap{m.to, m.from})
		}
	}
	t.rehash = slices.DeleteFunc(t.rehash, t.unhash)
	if err := t.forest.flush(); err != nil {
		t.log.Error("taking rules out of the trees", "error", err)
	}
	t.everyTuple(func(u *tuple) {
		if u.rules == 0 && u.place < 0 {
			t.dropTuple(u)
		}
	})
	if t.next != nil {
		t.next = nil
		t.setRanks()
	}
}

// unhash makes a tuple of at most one key single again. Programs know it as single, and the key is in its single slot too.
func (t *tables) unhash(u *tuple) bool {
	if len(u.chains) > 1 {
		return false
	}
	for _, c := range u.chains {
		if !t.owns(u, c.entries[0]) {
			return false
		}
		if i, ok := t.table.find(c.hash, c.entries[0]); ok {
			t.table.remove(i)
		}
	}
	u.hashed = false
	return true
}
