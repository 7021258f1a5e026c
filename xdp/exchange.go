package xdp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// swap puts a rule in the place of one with its key, mask and counter: only rank and action change, in the entry of both. A
// rule that is added has no from, and one that is removed has no to.
type swap struct{ from, to *Rule }

// raises reports whether the swap raises a rank, or removes a rule: then the rule wins over fewer rules than before.
func (s swap) raises() bool {
	return s.to == nil || s.from != nil && s.to.rank() > s.from.rank()
}

// stays reports whether the rule exists before and after the swap.
func (s swap) stays() bool { return s.from != nil && s.to != nil }

// order sorts swaps for run. Among those that raise, the rule that loses most comes first; among the others, the one that
// wins most.
func (s swap) order() uint64 {
	if s.raises() {
		return ^s.from.rank()
	}
	return s.to.rank()
}

// crosses reports whether a packet that matches both rules may be decided by neither the order before the exchange nor the
// one after it, if it meets o before its swap and s behind its own.
func (s swap) crosses(o swap) bool {
	return o.stays() && s.raises() != (s.to.rank() < o.from.rank()) && s.to.Overlaps(o.to)
}

// pairKey is a key among the rules of a tuple.
type pairKey struct {
	u   *tuple
	key string
}

// pairing is what an exchange does to the rules of one key: those of old that have no partner, and all of fresh.
type pairing struct{ old, fresh []*Rule }

// pair finds, for rules of fresh, rules of old whose entries they can take over. The others are added and removed. leave has
// the swaps that raise, come the others. From here until unpair, the entries of old keep no rank from a rule of fresh.
func (t *tables) pair(old, fresh []Rule) (come, leave []swap, err error) {
	t.found = false
	pairings := make(map[pairKey]*pairing, len(old))
	for i := range old {
		u, key, at, ok := t.entryOf(&old[i])
		if !ok {
			return nil, nil, fmt.Errorf("exchanging rule %d of %d: %w", i+1, len(old), ErrNotFound)
		}
		p := pairings[pairKey{u, key}]
		if p == nil {
			p = &pairing{}
			pairings[pairKey{u, key}] = p
		}
		p.old = append(p.old, &old[i])
		t.leaving[u.chains[key].entries[at]] = true
	}

	for i := range fresh {
		s, err := t.pairRule(pairings, &fresh[i])
		if err != nil {
			return nil, nil, err
		}
		if s.raises() {
			leave = append(leave, s)
		} else {
			come = append(come, s)
		}
	}
	for _, p := range pairings {
		for _, r := range p.old {
			leave = append(leave, swap{r, nil})
		}
	}
	return come, leave, nil
}

// pairRule takes the partner of a new rule out of its pairing. A rule without a partner is added.
func (t *tables) pairRule(pairings map[pairKey]*pairing, r *Rule) (swap, error) {
	p := t.pairingOf(pairings, r)
	if p == nil {
		return swap{nil, r}, nil
	}
	if slices.ContainsFunc(p.fresh, func(o *Rule) bool { return o.rank() == r.rank() }) {
		return swap{}, existsError()
	}
	p.fresh = append(p.fresh, r)

	at := slices.IndexFunc(p.old, func(o *Rule) bool { return o.Counter == r.Counter })
	if at < 0 {
		return swap{nil, r}, nil
	}
	for _, u := range t.tuplesOf(r) {
		if err := t.vacant(u, r); err != nil {
			return swap{}, err
		}
	}
	s := swap{p.old[at], r}
	p.old = slices.Delete(p.old, at, at+1)
	return s, nil
}

// pairingOf returns the pairing of a rule's key, or nil if no rule of old has it.
func (t *tables) pairingOf(pairings map[pairKey]*pairing, r *Rule) *pairing {
	for _, u := range t.tuplesOf(r) {
		if u == nil {
			continue
		}
		var buf keyBuffer
		if p := pairings[pairKey{u, string(bytesOf(u.keyOf(buf[:0], r)))}]; p != nil {
			return p
		}
	}
	return nil
}

// unpair forgets the pairs: no entry is leaving any more.
func (t *tables) unpair() { clear(t.leaving) }

// The order of run costs grace periods and loads, so it is bounded. Larger changes do not keep to it.
const (
	carefulSwaps = 512 // most swaps of an exchange that keeps to the order
	carefulWaits = 32  // most grace periods of a call of run
	carefulLoads = 4   // most loads of a call of run for the order; behind the last one it is not kept any more
)

// come carries out the swaps by which rules win over more rules than before, all or none.
//
// Added rules are committed by one store at the end. If the process dies before, the next one drops them, for which it needs
// no room. If ctx ends first, come takes the swaps back and returns the error of ctx. The error satisfies ErrUndone if a
// packet may have found a rule before it was taken back.
func (t *tables) come(ctx context.Context, swaps []swap) error {
	t.store.setUnderWay(rulesComing, true)
	defer t.commit()

	if !t.allInTrees && len(swaps) > 0 {
		t.chosen = choose(t, swaps)
	}
	for _, s := range swaps {
		t.wanted |= needOf(s.to)
	}
	defer func() { t.wanted = 0 }()

	t.forest.set.Stop = ctx.Err
	n, err := t.run(swaps)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && len(t.unloaded) > 0 {
		err = t.load()
	}
	t.forest.set.Stop = nil // abandon works to its end
	if err == nil {
		return nil
	}

	if t.found {
		err = fmt.Errorf("%w; %w", err, ErrUndone)
	}
	t.abandon(swaps[:n])
	return err
}

// commit ends come. Its store to the header commits all added rules: from there on, recover takes their entries for live.
// After abandon no such entry is left.
func (t *tables) commit() {
	t.store.setUnderWay(rulesComing, false)
	for _, unit := range t.coming {
		if d := t.entries.dirWord(unit); d.state() == entryComing {
			t.entries.setDir(unit, d.with(entryLive))
		}
	}
	t.coming = t.coming[:0]
}

// leave carries out the swaps by which rules win over fewer rules than before.
func (t *tables) leave(swaps []swap) error {
	if _, err := t.run(swaps); err != nil {
		return err
	}
	if len(swaps) == 0 {
		return nil
	}
	t.setRanks()
	// Wait for a grace period only when many units wait to be free: it takes 10 ms.
	if t.entries.waiting > t.g.units/4 {
		return t.reclaim()
	}
	return nil
}

// run carries out swaps, all of which raise or none, up to an error, and returns the number of those that it has carried out.
//
// At each instant a packet is decided by the rule that wins before all swaps, or by the one that wins after them. Three
// things make it so:
//   - The order of swaps: if they raise, the rule that loses most comes first, otherwise the rule that wins most.
//   - Programs find a rule before another rule that a packet may match too is swapped. await and keepOrder load programs and
//     change trees in between.
//   - A packet that has met one rule before its swap must not meet another one behind its swap, if the two would make a
//     third order (crosses). A grace period separates such swaps.
//
// A change of more than carefulSwaps rules does not keep to this. There the trees take all their rules together, first.
func (t *tables) run(swaps []swap) (done int, err error) {
	t.pending, t.unloaded, t.loads = nil, nil, 0
	if len(swaps) <= carefulSwaps && len(t.hooks) > 0 {
		t.loads = carefulLoads
	}

	first := 0
	if t.loads > 0 {
		slices.SortStableFunc(swaps, func(a, b swap) int { return cmp.Compare(a.order(), b.order()) })
	} else if first = t.treesFirst(swaps); first > 0 {
		// The trees may refuse their rules, or take long: until they have them, no packet sees a part of the change.
		if done, err := t.addToTrees(swaps[:first]); err != nil {
			return done, err
		}
	}

	raised := map[*tuple]bool{}
	since := first // a packet may have met the rules of swaps[since:] before their swaps
	waits := 0
	for i := first; i < len(swaps); i++ {
		s := swaps[i]
		if s.to == nil {
			t.removeRule(s.from)
			continue
		}
		if err := t.stopped(); err != nil {
			return i, err
		}
		if s.from == nil {
			if err := t.add(s.to); err != nil {
				return i, err
			}
			continue
		}

		if err := t.await(s.to); err != nil {
			return i, err
		}
		if len(swaps) <= carefulSwaps && waits < carefulWaits && slices.ContainsFunc(swaps[since:i], s.crosses) {
			if t.grace() != nil {
				waits = carefulWaits // go on without waiting: half of the swaps would be worse
			}
			since, waits = i, waits+1
		}
		t.found = true
		if u := t.swapRule(s); u != nil && s.raises() {
			raised[u] = true
		}
	}
	for u := range raised {
		u.best = t.bestRank(u)
	}
	return len(swaps), t.changeTrees(len(swaps))
}

// treesFirst sorts swaps that keep to no order: rules that are added to the trees, rules that stay, and the others. It
// returns the number of the first.
func (t *tables) treesFirst(swaps []swap) (inTrees int) {
	const trees, staying, others = 0, 1, 2
	part := make(map[swap]int, len(swaps))
	for _, s := range swaps {
		switch {
		case s.stays():
			part[s] = staying
		case s.to == nil || !t.goesIntoTrees(s.to):
			part[s] = others
		default:
			part[s] = trees
			inTrees++
		}
	}
	slices.SortStableFunc(swaps, func(a, b swap) int {
		return cmp.Or(cmp.Compare(part[a], part[b]), cmp.Compare(a.order(), b.order()))
	})
	return inTrees
}

// addToTrees adds rules, up to an error, and returns the number of those that it has added. Programs find none of them
// before the trees have all of them.
func (t *tables) addToTrees(swaps []swap) (done int, err error) {
	for i, s := range swaps {
		if err := t.stopped(); err != nil {
			return i, err
		}
		if err := t.add(s.to); err != nil {
			return i, err
		}
	}
	return len(swaps), t.changeTrees(len(swaps))
}

// stopped returns the error of come's context, or nil.
func (t *tables) stopped() error {
	if stop := t.forest.set.Stop; stop != nil {
		return stop()
	}
	return nil
}

// changeTrees lets the trees have the pending changes. rules is the number of rules of the exchange, for the error.
func (t *tables) changeTrees(rules int) error {
	changes := len(t.forest.changed) > 0
	if err := t.forest.flush(); err != nil {
		return fmt.Errorf("changing %d rules: %w", rules, err)
	}
	t.found = t.found || changes && t.need&needTree != 0
	return nil
}

// await loads programs before those that are attached find r as it will be, in two cases: they do not read all fields of r,
// or a packet may match both r and a rule that programs find only after a load. The second case is given up after
// carefulLoads.
func (t *tables) await(r *Rule) error {
	if readsAll := needOf(r)&^t.need == 0; readsAll {
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

// keepOrder is called before a change of r, a rule of u. If r is in the trees, it notes that r waits for a change of the
// trees. Otherwise, if a packet may match both r and a rule that waits, it changes the trees first. An error of the trees
// comes again at the end of run.
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

// abandon takes the swaps of come back, the last one first, and drops tuples that no program knows.
func (t *tables) abandon(swaps []swap) {
	for _, s := range slices.Backward(swaps) {
		if s.from == nil {
			t.removeRule(s.to)
		} else {
			t.swapRule(swap{s.to, s.from})
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
	if t.next != nil { // a load failed: the places of the attached programs are in force again
		t.next = nil
		t.setRanks()
	}
}

// unhash makes a tuple single again, if it has at most one key. Attached programs know the tuple as single, and the key is in
// its single slot too.
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
