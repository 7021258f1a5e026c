package tree

import (
	"cmp"
	"slices"
)

// stage orders the edits. At each instant a key finds the rule that is the best one before the change, or the one that is
// the best after it. New rules are stored first, the leaf with the best one first. Removed rules are taken out after all
// new ones, the worst one first. A leaf is stored more than once where another tree has a rule between two of its own.
func (x *exchange) stage() error {
	var come, gone []*edit
	byRank := func(a, b *rule) int { return cmp.Compare(a.rank, b.rank) }
	for _, e := range x.edits {
		slices.SortFunc(e.add, byRank)
		slices.SortFunc(e.remove, byRank)
		left := e.remove
		for i, r := range e.remove {
			if !slices.ContainsFunc(x.remove, func(o *rule) bool { return e.meets(o, r) }) {
				continue
			}
			late := *e
			if late.rank = r.rank; left != nil {
				left = nil // the last store takes them all away
			} else {
				late.remove = e.remove[i:]
			}
			gone = append(gone, &late)
		}
		if e.remove = left; len(e.add)+len(left) == 0 {
			continue
		}
		e.rank = NoRank
		if len(e.add) > 0 {
			e.rank = e.add[0].rank
		}
		for i := 1; i < len(e.add); i++ {
			r := e.add[i]
			between := func(o *rule) bool { return e.rank < o.rank && o.rank < r.rank && e.meets(o, r) }
			if slices.ContainsFunc(x.add, between) {
				early := *e
				early.add, early.remove = e.add[:i], nil
				come = append(come, &early)
				e.rank = r.rank
			}
		}
		come = append(come, e)
	}
	slices.SortStableFunc(come, func(a, b *edit) int { return cmp.Compare(a.rank, b.rank) })
	slices.SortStableFunc(gone, func(a, b *edit) int { return cmp.Compare(b.rank, a.rank) })
	if x.edits = append(come, gone...); len(x.edits) > max(mostEdits, len(x.s.ruleByEntry)) {
		return errShape
	}
	return nil
}

// meets reports whether o is in another tree than the edit, and a key matches it and r.
func (e *edit) meets(o, r *rule) bool {
	return o.groups[e.class]&^(1<<e.group) != 0 && o.overlaps(r)
}

// commit stores the leaves. Ranks of a fork are lowered before, and raised behind.
func (x *exchange) commit() {
	s := x.s
	s.paths = x.paths
	for _, e := range x.edits {
		for _, r := range e.add {
			s.lower(e.class, e.group, r.rank)
		}
	}
	for _, e := range x.edits {
		old := s.mem.load(e.at)
		s.mem.store(e.at, e.node)
		s.retireTree(old)
	}
}
