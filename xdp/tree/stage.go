package tree

import (
	"cmp"
	"slices"
)

// stage orders the edits so that at each instant a key finds the rule that is the best one before the change, or the one that is
// the best behind it.
//
// New rules are stored first, the leaf with the best one first. Removed rules are taken out behind all new ones, the worst one
// first. A leaf is stored more than once if another tree has a rule between two of its own.
func (x *exchange) stage() error {
	var come, gone []*edit
	byRank := func(a, b *rule) int { return cmp.Compare(a.rank, b.rank) }
	for _, e := range x.edits {
		slices.SortFunc(e.add, byRank)
		slices.SortFunc(e.remove, byRank)
		gone = append(gone, x.stageRemovals(e)...)
		if len(e.add)+len(e.remove) > 0 {
			come = append(come, x.stageAdditions(e)...)
		}
	}
	slices.SortStableFunc(come, func(a, b *edit) int { return cmp.Compare(a.rank, b.rank) })
	slices.SortStableFunc(gone, func(a, b *edit) int { return cmp.Compare(b.rank, a.rank) })

	x.edits = append(come, gone...)
	if len(x.edits) > max(mostEdits, len(x.s.ruleByEntry)) {
		return errShape
	}
	return nil
}

// stageRemovals returns edits of the leaf that take removed rules out behind all additions, each by its rank. These are the rules
// that meet a removed rule of another tree. If there are any, e takes no rule out, and the edit that is stored last takes all
// of them out.
func (x *exchange) stageRemovals(e *edit) (late []*edit) {
	for i, r := range e.remove {
		if !slices.ContainsFunc(x.remove, func(o *rule) bool { return e.meets(o, r) }) {
			continue
		}
		l := *e
		l.rank = r.rank
		if len(late) > 0 {
			l.remove = e.remove[i:]
		}
		late = append(late, &l)
	}
	if len(late) > 0 {
		e.remove = nil
	}
	return late
}

// stageAdditions returns edits of the leaf, the last of which is e, that add its new rules. Two new rules are in different edits
// if another tree gets a rule that is better than the one and worse than the other.
func (x *exchange) stageAdditions(e *edit) (edits []*edit) {
	e.rank = NoRank
	if len(e.add) > 0 {
		e.rank = e.add[0].rank
	}
	for i := 1; i < len(e.add); i++ {
		r := e.add[i]
		between := func(o *rule) bool { return e.rank < o.rank && o.rank < r.rank && e.meets(o, r) }
		if slices.ContainsFunc(x.add, between) {
			early := *e
			early.add = e.add[:i]
			early.remove = nil
			edits = append(edits, &early)
			e.rank = r.rank
		}
	}
	return append(edits, e)
}

// meets reports whether o is in another tree than the edit, and a key may match o and r.
func (e *edit) meets(o, r *rule) bool {
	return o.groups[e.class]&^(1<<e.group) != 0 && o.overlaps(r)
}

// commit stores the new leaves in the order of stage. It lowers the ranks of forks before, so that programs look far enough.
// Exchange raises them behind.
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
