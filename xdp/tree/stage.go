package tree

import (
	"cmp"
	"slices"
)

// stage orders the edits so that at each instant, every key finds the winner of before the change or the winner of after it.
//
// It adds rules first, beginning with the leaf that gets the best one. It removes rules last, beginning with the worst. A leaf may
// need several edits: for example, if another tree gets a rule that ranks between two new rules of this leaf.
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

// stageRemovals returns edits to store after all additions, each at the rank of its rule. They are for removed rules that meet a
// removed rule of another tree. If there are any, e itself removes nothing, and the last of these edits removes all rules.
func (x *exchange) stageRemovals(e *edit) (late []*edit) {
	for i, r := range e.remove {
		if len(late) > 0 && late[len(late)-1].rank == r.rank {
			continue // that edit removes r, too: a flow with sets has several rules of one rank
		}
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

// stageAdditions splits the new rules of a leaf over several edits, the last of which is e. It separates two new rules if another tree
// gets a rule that ranks between them.
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

// meets reports whether o is in another tree than this leaf, and some key may match both o and r.
func (e *edit) meets(o, r *rule) bool {
	return o.groups[e.class]&^(1<<e.group) != 0 && o.overlaps(r)
}

// commit stores the new leaves in the order of stage. It lowers the ranks in the forks first, so that programs reach the new rules.
// Exchange raises them afterwards.
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
