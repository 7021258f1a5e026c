package tree

import (
	"cmp"
	"slices"
)

// stage orders the edits so that a key that two new rules match never finds the worse one before the better one is
// stored: the leaf with the best new rule comes first. A leaf that would get a worse rule with it too early is stored
// once for each of its new rules. Edits without new rules are the last.
func (x *exchange) stage() {
	var staged []*edit
	for _, e := range x.edits {
		slices.SortFunc(e.add, func(a, b *rule) int { return cmp.Compare(a.rank, b.rank) })
		e.rank = NoRank
		if len(e.add) > 0 {
			e.rank = e.add[0].rank
		}
		if x.torn(e) {
			for i := 1; i < len(e.add); i++ {
				early := *e
				early.add, early.remove = e.add[:i], nil
				staged = append(staged, &early)
				e.rank = e.add[i].rank
			}
		}
		staged = append(staged, e)
	}
	slices.SortStableFunc(staged, func(a, b *edit) int { return cmp.Compare(a.rank, b.rank) })
	x.edits = staged
}

// torn reports whether a new rule of another tree is better than one of this leaf, and worse than the best of it.
func (x *exchange) torn(e *edit) bool {
	for _, r := range e.add {
		for _, o := range x.add {
			if e.rank < o.rank && o.rank < r.rank && o.groups[e.class]&^(1<<e.group) != 0 && o.overlaps(r) {
				return true
			}
		}
	}
	return false
}

// commit stores the leaves. Ranks of a fork are lowered before, and raised behind.
func (x *exchange) commit() {
	s := x.s
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

// lower makes sure that a packet looks into a tree for a rule of this rank.
func (s *Set) lower(c, group int, rank uint64) {
	root := s.mem.load(c)
	if root.Kind() != KindFork {
		return
	}
	for g := range group + 1 {
		at := root.Base() + 2*g + 1
		if s.mem.load(at) > Node(rank) {
			s.mem.store(at, Node(rank))
		}
	}
}

// isBest reports whether a fork of the class has the rank of the rule.
func (s *Set) isBest(c int, r *rule) bool {
	root := s.mem.load(c)
	if root.Kind() != KindFork || r.groups[c] == 0 {
		return false
	}
	for g := range root.Count() {
		if s.mem.load(root.Base()+2*g+1) == Node(r.rank) {
			return true
		}
	}
	return false
}

// raise stores the ranks of a class's fork, from its rules.
func (s *Set) raise(c int) {
	root := s.mem.load(c)
	if root.Kind() != KindFork {
		return
	}
	var ranks [MaxGroups]uint64
	for g := range ranks {
		ranks[g] = NoRank
	}
	for _, r := range s.rules {
		for g := range root.Count() {
			if r.groups[c]>>g&1 != 0 {
				ranks[g] = min(ranks[g], r.rank)
			}
		}
	}
	best := NoRank
	for g := root.Count() - 1; g >= 0; g-- {
		best = min(best, ranks[g])
		s.mem.store(root.Base()+2*g+1, Node(best))
	}
}
