package tree

import (
	"cmp"
	"slices"
)

// Path counts what a packet touches in a lookup. Unlike a time, it is the same on every host.
type Path struct {
	Nodes   int
	Entries int // compared with the packet
	Trees   int // only for NS
}

// Steps returns the length of the path, by which paths are compared and bounded.
func (p Path) Steps() int { return p.Nodes + p.Entries }

// Plus returns the sum of two paths.
func (p Path) Plus(o Path) Path {
	return Path{p.Nodes + o.Nodes, p.Entries + o.Entries, p.Trees + o.Trees}
}

// NS estimates the time of the path in nanoseconds, with the weights of Walk.NS. It assumes that each tree ends in a list.
func (p Path) NS() float64 {
	return nsCut*float64(p.Nodes) + nsNext*float64(p.Entries) + (nsWalk+nsList+nsEntry-nsNext)*float64(p.Trees)
}

// Path returns what the lookups have touched.
func (w *Walk) Path() Path { return Path{w.Nodes, w.Entries, w.Groups} }

// Worst returns an upper bound for the path of any key, by class. The bound adds up the longest paths through all trees of the class.
// A key reaches it only if it takes the longest path in each of them.
func Worst(mem []uint64) (worst [Classes]Path) {
	for c := range worst {
		root := Node(mem[c])
		worst[c] = longest(mem, root, nil)
		if root != 0 && root.Kind() != KindFork {
			worst[c].Trees = 1
		}
	}
	return worst
}

// Worst returns an upper bound for the path of any key, by class. See the function Worst.
func (s *Set) Worst() [Classes]Path { return Worst(s.mem.words) }

// onLongest returns the entries of the leaves at the end of the longest path, beginning with the longest leaf.
func (s *Set) onLongest(root Node) (entries []Entry) {
	var leaves []Node
	longest(s.mem.words, root, &leaves)
	slices.SortStableFunc(leaves, func(a, b Node) int { return cmp.Compare(b.rules(), a.rules()) })
	for _, n := range leaves {
		for i := range n.rules() {
			entries = append(entries, Entry(n.ruleAt(s.mem.words, i)&^hidden))
		}
	}
	return entries
}

// rules returns the number of rules of a leaf.
func (n Node) rules() int {
	switch {
	case n == 0:
		return 0
	case n.Kind() == KindList:
		return n.Count()
	}
	return 1
}

// longest returns the longest path from a node on. If leaves is not nil, it appends the leaf at the end of the path, and for a fork one
// leaf of each tree.
func longest(mem []uint64, n Node, leaves *[]Node) Path {
	switch n.Kind() {
	case KindFork:
		sum := Path{Nodes: 1}
		for g := range n.Count() {
			sum = sum.Plus(longest(mem, Node(mem[n.Base()+2*g]), leaves)).Plus(Path{Trees: 1})
		}
		return sum
	case KindCut:
		var most Path
		child := Node(0)
		for i := range n.size() {
			below := Node(mem[n.Base()+i])
			if p := longest(mem, below, nil); p.Steps() > most.Steps() {
				most, child = p, below
			}
		}
		if leaves != nil {
			longest(mem, child, leaves)
		}
		return most.Plus(Path{Nodes: 1})
	}
	if leaves != nil && n != 0 {
		*leaves = append(*leaves, n)
	}
	return Path{Nodes: 1, Entries: n.rules()}
}

// paths holds upper bounds for the longest path through each tree of each class. Exchange keeps them up to date cheaply. Walking all
// nodes for each change would not be cheap.
type paths [Classes][MaxGroups]Path

// measure makes the bounds exact.
func (p *paths) measure(m *memory) {
	for c := range p {
		p[c] = [MaxGroups]Path{}
		root := m.load(c)
		if root.Kind() != KindFork {
			p[c][0] = longest(m.words, root, nil)
			continue
		}
		for g := range root.Count() {
			p[c][g] = longest(m.words, m.load(root.Base()+2*g), nil)
		}
	}
}

// raise raises the bound of a tree to cover the new leaf of an edit.
func (p *paths) raise(m *memory, e *edit) {
	way := longest(m.words, e.node, nil).Plus(Path{Nodes: e.depth})
	if at := &p[e.class][e.group]; way.Steps() > at.Steps() {
		*at = way
	}
}

// sum returns the worst path of a class with this number of trees.
func (p *paths) sum(class, trees int) (sum Path) {
	if trees > 1 {
		sum.Nodes++ // the fork
	}
	for _, way := range p[class][:trees] {
		sum = sum.Plus(way)
	}
	return sum
}

// lower lowers the ranks in the fork of a class, so that programs search a group for a rule of this rank. Call it before storing the
// rule.
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

// raise stores the exact ranks in the fork of a class. Call it after removing rules.
func (s *Set) raise(c int) {
	root := s.mem.load(c)
	if root.Kind() != KindFork {
		return
	}
	var ranks [MaxGroups]uint64
	for g := range ranks {
		ranks[g] = NoRank
	}
	for _, r := range s.ruleByEntry {
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
