package tree

import (
	"cmp"
	"slices"
)

// Path counts what a packet touches on its way. It is the same on every host.
type Path struct {
	Nodes   int
	Entries int // of rules with which the packet is compared
	Trees   int // for NS
}

// Steps returns the length of the path. Paths are compared and bounded by it.
func (p Path) Steps() int { return p.Nodes + p.Entries }

// Plus returns one path behind another.
func (p Path) Plus(o Path) Path {
	return Path{p.Nodes + o.Nodes, p.Entries + o.Entries, p.Trees + o.Trees}
}

// NS estimates the time of the path in nanoseconds, with the weights of Walk.NS: nodes and entries are in the second level of the
// cache. It takes each tree to end in a list.
func (p Path) NS() float64 {
	return nsCut*float64(p.Nodes) + nsNext*float64(p.Entries) + (nsWalk+nsList+nsEntry-nsNext)*float64(p.Trees)
}

// Path returns what the lookups have touched.
func (w *Walk) Path() Path { return Path{w.Nodes, w.Entries, w.Groups} }

// Worst returns a path for each class of keys. No key of the class touches more, whatever rules it matches. The path is the sum of
// the longest ways through all trees of the class, so a key touches as much only if it takes all of these ways.
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

// Worst is the function Worst, of the memory of the set.
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

// longest returns the longest path from a node on. If leaves is not nil, it appends the leaf at which the path ends; from a fork
// on, the leaf of each tree.
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

// paths bound the longest way through each tree of each class from above. With them, the cost of a change does not grow with the
// number of nodes.
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

// raise notes the new leaf of an edit.
func (p *paths) raise(m *memory, e *edit) {
	way := longest(m.words, e.node, nil).Plus(Path{Nodes: e.depth})
	if at := &p[e.class][e.group]; way.Steps() > at.Steps() {
		*at = way
	}
}

// sum returns the worst path of a class with so many trees.
func (p *paths) sum(class, trees int) (sum Path) {
	if trees > 1 {
		sum.Nodes++ // the fork
	}
	for _, way := range p[class][:trees] {
		sum = sum.Plus(way)
	}
	return sum
}

// lower lowers the ranks of a class's fork so that programs look into a group for a rule of this rank. It comes before the rule.
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

// raise stores the exact ranks of a class's fork, when rules have gone.
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
