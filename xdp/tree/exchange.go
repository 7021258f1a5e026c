package tree

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Most leaves of a tree that a new rule may be in.
const (
	leavesOfAdded    = 64   // of any tree
	leavesOfExchange = 1024 // of the tree of a rule that it replaces
)

// mostEdits is the number of edits above which trees are built anew, unless the set has more rules.
const mostEdits = 4096

// errShape means that the change cannot be made leaf by leaf.
var errShape = errors.New("tree: the trees must be built again")

// edit replaces a leaf by one store.
type edit struct {
	at     int // the word of the memory that leads to the leaf
	class  int
	group  int
	depth  int    // cuts above the leaf
	region region // of the leaf
	remove []*rule
	add    []*rule
	rank   uint64 // the place among the edits that add, or among those that only remove
	node   Node   // the new leaf
}

// exchange is a change that is planned. Programs see nothing of it before commit.
type exchange struct {
	s          *Set
	remove     []*rule
	add        []*rule
	bound      int // as Set.Bound
	edits      []*edit
	editByWord map[int]*edit
	paths      paths // Set.paths behind the change
}

// Exchange removes the rules of these entries and adds others, all or none. A key that an old and a new rule match always finds
// one of the two: a leaf is exchanged by one store, or all trees are built anew. The memory of replaced nodes is retired.
//
// If the error is ErrFull, the caller may wait for a grace period, Reclaim, and try again. It may also be ErrDense, a
// [CostError], or the error of Stop.
func (s *Set) Exchange(remove []Entry, add []Rule) error {
	x := exchange{s: s, editByWord: map[int]*edit{}}
	gone := make(map[*rule]bool, len(remove))
	for _, entry := range remove {
		r := s.ruleByEntry[Node(entry)]
		if r == nil || gone[r] {
			return fmt.Errorf("tree: no rule has entry %#x", entry)
		}
		gone[r] = true
		x.remove = append(x.remove, r)
	}

	fresh := make(map[Node]bool, len(add))
	for i := range add {
		r, err := s.newRule(&add[i])
		if err != nil {
			return err
		}
		if s.ruleByEntry[r.entry] != nil || fresh[r.entry] {
			return fmt.Errorf("tree: two rules have entry %#x", add[i].Entry)
		}
		fresh[r.entry] = true
		x.add = append(x.add, r)
	}
	if len(x.add) > len(x.remove) {
		x.bound = s.Bound
	}

	builtBefore := s.built
	if err := x.apply(gone); err != nil {
		return err
	}

	for _, r := range x.remove {
		delete(s.ruleByEntry, r.entry)
	}
	for _, r := range x.add {
		s.ruleByEntry[r.entry] = r
	}
	for c := range Classes {
		if slices.ContainsFunc(x.remove, func(r *rule) bool { return s.isBest(c, r) }) {
			s.raise(c)
		}
	}
	if s.built == builtBefore {
		s.changes += len(x.remove) + len(x.add)
	}
	return nil
}

// apply changes leaves, or builds the trees anew. gone has the rules of remove.
func (x *exchange) apply(gone map[*rule]bool) error {
	s := x.s

	// To build the trees of a few rules takes less time than to take many others out of their leaves.
	fewStay := len(x.add) == 0 && 2*len(x.remove) > len(s.ruleByEntry)+32
	if fewStay && x.rebuild(gone) == nil {
		return nil
	}

	many := len(x.add) > 32 && 4*len(x.add) > len(s.ruleByEntry)
	if many {
		s.divided = false
		return x.rebuild(gone)
	}
	if s.decayed() {
		s.divided = true
		if x.rebuild(gone) == nil {
			return nil
		}
		s.changes = 0 // try again behind as many changes
	}
	if x.plan() != nil {
		s.divided = true
		return x.rebuild(gone)
	}
	x.commit()
	return nil
}

// rebuild builds all trees anew, of the rules behind the change.
func (x *exchange) rebuild(gone map[*rule]bool) error {
	rules := make([]*rule, 0, len(x.s.ruleByEntry)+len(x.add))
	for _, r := range x.s.ruleByEntry {
		if !gone[r] {
			rules = append(rules, r)
		}
	}
	return x.s.replace(append(rules, x.add...), x.bound)
}

// plan finds the leaves of the change, and builds their successors in free memory.
func (x *exchange) plan() error {
	for c := range Classes {
		for _, r := range x.remove {
			for g := range MaxGroups {
				if r.groups[c]>>g&1 == 0 {
					continue
				}
				limit := math.MaxInt
				if x.s.single {
					limit = leavesOfExchange
				}
				if !x.visit(c, g, r, limit, func(e *edit) { e.remove = append(e.remove, r) }) {
					return errShape
				}
			}
		}
		for _, r := range x.add {
			if err := x.s.stopped(); err != nil {
				return err
			}
			if r.classes>>c&1 != 0 && !x.place(c, r) {
				return errShape
			}
		}
	}
	if err := x.stage(); err != nil {
		return err
	}

	b := x.s.newBuilder()
	b.last = true
	for _, e := range x.edits {
		if x.successor(b, e); b.err != nil {
			b.undo(0)
			return b.err
		}
	}
	if x.over() {
		b.undo(0)
		return errShape
	}
	return nil
}

// over reports whether the change gives a class a worst path above the bound, and a longer one than it has. The paths of the set
// may be longer than the true ones. So if they are over, they are measured, and judged again.
func (x *exchange) over() bool {
	if !x.pathsOver() {
		return false
	}
	x.s.paths.measure(x.s.mem)
	return x.pathsOver()
}

// pathsOver computes the paths behind the change, and judges them for over.
func (x *exchange) pathsOver() bool {
	s := x.s
	x.paths = s.paths
	for _, e := range x.edits {
		x.paths.raise(s.mem, e)
	}
	for c := range Classes {
		n := s.groupCount(c)
		now, before := x.paths.sum(c, n).Steps(), s.paths.sum(c, n).Steps()
		if x.bound > 0 && now > x.bound && now > before {
			return true
		}
	}
	return false
}

// place chooses the group of a new rule, and adds the rule to its leaves. It returns false if no group takes the rule.
//
// A rule that overlaps a removed one goes to the tree of that one. Then a key that both match comes to one leaf, where one store
// exchanges the rules.
func (x *exchange) place(c int, r *rule) bool {
	s := x.s
	add := func(e *edit) { e.add = append(e.add, r) }

	old := uint8(0) // groups of removed rules that overlap r, as bits
	for _, o := range x.remove {
		if o.groups[c] != 0 && o.overlaps(r) {
			old |= o.groups[c]
		}
	}
	if old&(old-1) != 0 { // more than one
		return false
	}

	count := s.groupCount(c)
	for g := range count {
		if old != 0 && old>>g != 1 {
			continue
		}
		limit := leavesOfAdded
		if old != 0 {
			limit = leavesOfExchange
		}
		if x.visit(c, g, r, limit, nil) {
			r.groups[c] = 1 << g
			return x.visit(c, g, r, limit, add)
		}
	}

	// No tree takes the rule: it gets a new one. That makes another fork, so no edit may wait for a root in the fork of now.
	rooted := slices.ContainsFunc(x.edits, func(e *edit) bool { return e.class == c && e.depth == 0 })
	if old != 0 || count == MaxGroups || rooted || !s.grow(c) {
		return false
	}
	r.groups[c] = 1 << count
	return x.visit(c, count, r, 1, add)
}

// groupCount returns the number of trees of a class.
func (s *Set) groupCount(c int) int {
	if root := s.mem.load(c); root.Kind() == KindFork {
		return root.Count()
	}
	return 1
}

// groupAt returns the word of the memory that leads to a tree.
func (s *Set) groupAt(c, g int) int {
	if root := s.mem.load(c); root.Kind() == KindFork {
		return root.Base() + 2*g
	}
	return c
}

// grow gives a class one more tree, which is empty. It returns false if there is no room for another fork.
func (s *Set) grow(c int) bool {
	old, n := s.mem.load(c), s.groupCount(c)
	base, ok := s.mem.alloc(2 * (n + 1))
	if !ok {
		return false
	}
	for g := range n {
		s.mem.words[base+2*g] = uint64(s.mem.load(s.groupAt(c, g)))
		s.mem.words[base+2*g+1] = 0
	}
	s.mem.words[base+2*n] = 0
	s.mem.words[base+2*n+1] = NoRank
	s.mem.store(c, newFork(base, n+1))
	if old.Kind() == KindFork {
		s.mem.retire(old.Base())
	}
	s.raise(c)
	return true
}

// visit calls f with the edit of each leaf of a tree that a rule is in, or is to be in. If there are more than limit such leaves,
// it returns false. f may be nil, to count.
func (x *exchange) visit(c, g int, r *rule, limit int, f func(*edit)) bool {
	e := edit{
		at:     x.s.groupAt(c, g),
		class:  c,
		group:  g,
		region: x.s.regions[c],
	}
	return x.walk(&e, r, &limit, f)
}

// walk is visit from the node of e on. It leaves e as it was.
func (x *exchange) walk(e *edit, r *rule, limit *int, f func(*edit)) bool {
	n := x.s.mem.load(e.at)
	if n.Kind() != KindCut {
		if *limit--; *limit < 0 {
			return false
		}
		if f != nil {
			f(x.editOf(e))
		}
		return true
	}

	w := n.window()
	var values []uint32
	if !e.region.values(r, w, *limit, func(v uint32) { values = append(values, v) }) {
		return false
	}

	at := e.at
	outer := e.region.enter(w)
	e.depth++
	ok := true
	for _, v := range values {
		e.region.child(w, uint64(v))
		e.at = n.Base() + int(v)
		if ok = x.walk(e, r, limit, f); !ok {
			break
		}
	}
	e.depth--
	e.at = at
	e.region.leave(w, outer)
	return ok
}

// editOf returns the edit of the leaf to which e has come, and makes it if need be.
func (x *exchange) editOf(e *edit) *edit {
	known := x.editByWord[e.at]
	if known == nil {
		made := *e
		known = &made
		x.editByWord[e.at] = known
		x.edits = append(x.edits, known)
	}
	return known
}

// successor builds the new leaf of an edit.
func (x *exchange) successor(b *builder, e *edit) {
	rules, hid := x.s.rulesOf(e)
	rules = slices.DeleteFunc(rules, func(r *rule) bool { return slices.Contains(e.remove, r) })
	rules = append(rules, e.add...)
	slices.SortFunc(rules, func(a, b *rule) int { return cmp.Compare(a.rank, b.rank) })

	b.begin(rules, true)
	order := b.order()
	b.region = e.region
	b.depth = e.depth
	b.words = 4
	b.leaf = 1
	b.quota = 64 + 16*len(rules)
	mark := len(b.blocks)
	e.node = b.build(order, hid)
	if !errors.Is(b.err, errQuota) {
		return
	}

	// Cuts take too many words: a list takes few.
	b.undo(mark)
	b.err = nil
	b.depth = e.depth
	b.listByHash = map[uint64]int32{}
	b.leaf = len(rules)
	b.quota = math.MaxInt
	e.node = b.build(order, hid)
}

// rulesOf returns the rules of the leaf of an edit, before the change. If the edit removes the rule that hides others, the others
// are among them. Otherwise hid tells whether others stay hidden.
func (s *Set) rulesOf(e *edit) (rules []*rule, hid Node) {
	old := s.mem.load(e.at)
	rules = s.leafRules(old)
	if !s.isHidden(old) {
		return rules, 0
	}
	if !slices.ContainsFunc(e.remove, func(r *rule) bool { return r.covers(&e.region) }) {
		return rules, hidden
	}

	rules = rules[:0]
	for _, r := range s.ruleByEntry {
		if r.groups[e.class]>>e.group&1 != 0 && r.in(&e.region) {
			rules = append(rules, r)
		}
	}
	return rules, 0
}

// leafRules returns the rules of a leaf, without hidden ones.
func (s *Set) leafRules(n Node) (rules []*rule) {
	switch {
	case n.Kind() == KindList:
		for i := range n.Count() {
			rules = append(rules, s.ruleByEntry[n.ruleAt(s.mem.words, i)&^hidden])
		}
	case n != 0:
		rules = append(rules, s.ruleByEntry[n&^hidden])
	}
	return rules
}

// isHidden reports whether a leaf leaves out rules behind one that covers it.
func (s *Set) isHidden(n Node) bool {
	if n.Kind() == KindList {
		n = n.ruleAt(s.mem.words, n.Count()-1)
	}
	return n&hidden != 0
}
