package xdp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// swap changes rank and action of a rule in its entry. Key, mask and counter of from and to are equal. An added rule has no
// from, and a removed rule has no to.
type swap struct{ from, to *Rule }

// raises reports whether the rule will win over fewer rules than before, because its rank rises or it is removed.
func (s swap) raises() bool {
	return s.to == nil || s.from != nil && s.to.rank() > s.from.rank()
}

// stays reports whether the rule exists before and after the swap.
func (s swap) stays() bool { return s.from != nil && s.to != nil }

// order is the position of a swap in run, which processes the lowest first. Among swaps that raise, the rule with the highest
// old rank comes first. Among the others, the rule with the lowest new rank does.
func (s swap) order() uint64 {
	if s.raises() {
		return ^s.from.rank()
	}
	return s.to.rank()
}

// crosses reports whether a grace period must separate the swaps o and s. A packet under way sees o before its swap, and s
// after its swap. If the two rules trade places, that is an order which existed neither before the exchange nor after it.
func (s swap) crosses(o swap) bool {
	return o.stays() && s.raises() != (s.to.rank() < o.from.rank()) && s.to.Overlaps(o.to)
}

// pairKey identifies a chain: a key within a tuple.
type pairKey struct {
	u   *tuple
	key string
}

// pairing collects the rules of an exchange that have one key. pairRule removes rules from old as it finds partners for them.
type pairing struct{ old, fresh []*Rule }

// pair turns an exchange into swaps. Where it can, it lets a rule of fresh reuse the entry of a rule of old. The remaining rules
// are added and removed. leave has the swaps that raise, and come has the others.
//
// pair marks the entries of old in t.leaving, so that rules of fresh may have their ranks. The caller must call unpair.
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

// pairRule looks for a partner of a new rule among the old rules of its key. Without one, the rule is added.
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

// unpair forgets the marks of pair.
func (t *tables) unpair() { clear(t.leaving) }

// Bounds of run. To keep its order, it waits for grace periods of 10 ms, and loads programs for up to 100 ms. A change too large
// for these bounds does not keep the order.
const (
	carefulSwaps = 512 // swaps of an exchange
	carefulWaits = 32  // grace periods within run
	carefulLoads = 4   // loads within run
)

// come performs the swaps by which rules win over more rules than before, all or none.
//
// One store at the end commits all added rules. If the process dies before it, the next process drops them, which needs no
// memory. If ctx ends before it, come rolls the swaps back and returns the error of ctx. After a rollback the error is an
// ErrUndone if a packet may have found one of the rules.
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
	t.forest.set.Stop = nil // abandon must not stop halfway
	if err == nil {
		return nil
	}

	if t.found {
		err = fmt.Errorf("%w; %w", err, ErrUndone)
	}
	t.abandon(swaps[:n])
	return err
}

// commit ends come. Its store to the header commits all added rules. From that store on, recover would treat their entries as
// live. After abandon there is none left to commit.
func (t *tables) commit() {
	t.store.setUnderWay(rulesComing, false)
	for _, unit := range t.coming {
		if d := t.entries.dirWord(unit); d.state() == entryComing {
			t.entries.setDir(unit, d.with(entryLive))
		}
	}
	t.coming = t.coming[:0]
}

// leave performs the swaps by which rules win over fewer rules than before.
func (t *tables) leave(swaps []swap) error {
	if _, err := t.run(swaps); err != nil {
		return err
	}
	if len(swaps) == 0 {
		return nil
	}
	t.setRanks()
	// A grace period takes 10 ms, so wait for one only if it frees many units.
	if t.entries.waiting > t.g.units/4 {
		return t.reclaim()
	}
	return nil
}

// run performs swaps. Either all of them raise, or none does. On an error it returns the number of swaps performed so far.
//
// At every instant, a packet is decided by the rule that wins before all swaps, or by the one that wins after all of them. Three
// things ensure this:
//   - The order of the swaps: see swap.order.
//   - Programs must find a rule before run swaps the next one that overlaps it. Where a rule needs new programs or a change of
//     the trees for that, await and keepOrder perform it in between.
//   - A packet under way must not see one rule before its swap and another after its swap, if together these make a third
//     order. run waits for a grace period between two such swaps: see swap.crosses.
//
// A change of more than carefulSwaps rules gives no such guarantee. It adds all rules of the trees together, before the others.
func (t *tables) run(swaps []swap) (done int, err error) {
	t.pending, t.unloaded, t.loads = nil, nil, 0
	if len(swaps) <= carefulSwaps && len(t.hooks) > 0 {
		t.loads = carefulLoads
	}

	first := 0
	if t.loads > 0 {
		slices.SortStableFunc(swaps, func(a, b swap) int { return cmp.Compare(a.order(), b.order()) })
	} else if first = t.treesFirst(swaps); first > 0 {
		// Building trees may fail or take long. Do it first, while no packet sees any part of the change.
		if done, err := t.addToTrees(swaps[:first]); err != nil {
			return done, err
		}
	}

	raised := map[*tuple]bool{}
	since := first // a packet under way may have seen the rules of swaps[since:] before their swaps
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
				waits = carefulWaits // the kernel refuses: finish without waiting, because half of a change is worse
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

// treesFirst sorts the swaps of a large change: first the rules added to the trees, then the rules that stay, then the others. It
// returns the number of rules added to the trees.
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

// addToTrees adds rules to the trees. Programs find all of them at once, with the change of the trees at the end. On an error
// it returns the number of rules added so far.
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

// changeTrees applies the pending changes to the trees. rules is the size of the exchange, for the error.
func (t *tables) changeTrees(rules int) error {
	changes := len(t.forest.changed) > 0
	if err := t.forest.flush(); err != nil {
		return fmt.Errorf("changing %d rules: %w", rules, err)
	}
	t.found = t.found || changes && t.need&needTree != 0
	return nil
}

// await loads new programs before r changes, in two cases: the attached programs do not parse all fields of r, or r overlaps a
// rule they cannot find yet. In the second case the load only keeps the order, and await performs at most carefulLoads of them.
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

// keepOrder must run before r, a rule of u, changes. A rule of the trees is noted as pending. For any other rule, keepOrder first
// applies the pending changes if one of them overlaps r. It ignores an error of the trees, because run meets it again at its end.
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

// abandon rolls back the swaps of come, last one first. It drops the tuples that have become empty, unless programs search them.
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
	t.stay()
}

// unhash turns a tuple back into a single one, if its only key is still in the single slot. The attached programs never stopped
// looking there. unhash reports whether it has done so.
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
