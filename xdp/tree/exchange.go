package tree

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Limits for the leaves of a new rule in one tree.
const (
	leavesOfAdded    = 64   // in general
	leavesOfExchange = 1024 // in the tree of the rule that it replaces
)

// mostEdits is the limit for the edits of a change. A larger set may have as many edits as rules. Beyond that, building all trees anew
// is faster.
const mostEdits = 4096

// errShape means that a change cannot be made by editing leaves.
var errShape = errors.New("tree: the trees must be built again")

// edit replaces a leaf, with a single store.
type edit struct {
	at     int // the word to store
	class  int
	group  int
	depth  int    // number of cuts above the leaf
	region region // of the leaf
	remove []*rule
	add    []*rule
	rank   uint64 // sort key of stage
	node   Node   // the new leaf
}

// exchange is a planned change. Programs see nothing of it before commit.
type exchange struct {
	s          *Set
	remove     []*rule
	add        []*rule
	bound      int // Set.Bound, or 0 if it does not apply
	edits      []*edit
	editByWord map[int]*edit
	paths      paths // Set.paths after the change
}

// Exchange removes the rules of some entries and adds other rules, all or none. If a key matches an old and a new rule, it finds one
// of them at every instant. The memory of replaced nodes is retired.
//
// After an ErrFull, the caller may wait for a grace period, call Reclaim, and try again. Exchange may also return ErrDense, a
// [CostError], or the error of Stop.
func (s *Set) Exchange(remove []Entry, add []Rule) error {
	x := exchange{s: s, editByWord: map[int]*edit{}}
	gone := make(map[*rule]bool, len(remove))
	for _, entry := range remove {
		r := s.ruleByEntry[Node(entry)]
		if r == nil {
			return fmt.Errorf("tree: no rule has entry %#x", entry)
		}
		if gone[r] {
			return fmt.Errorf("tree: entry %#x is given twice", entry)
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

// apply edits leaves, or builds all trees anew. gone contains the rules of remove.
func (x *exchange) apply(gone map[*rule]bool) error {
	s := x.s

	// If few rules remain, building their trees is faster than removing many rules from their leaves.
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
		s.changes = 0 // try again after as many changes
	}
	if x.plan() != nil {
		s.divided = true
		return x.rebuild(gone)
	}
	x.commit()
	return nil
}

// rebuild builds all trees anew, with the rules after the change.
func (x *exchange) rebuild(gone map[*rule]bool) error {
	rules := make([]*rule, 0, len(x.s.ruleByEntry)+len(x.add))
	for _, r := range x.s.ruleByEntry {
		if !gone[r] {
			rules = append(rules, r)
		}
	}
	return x.s.replace(append(rules, x.add...), x.bound)
}

// plan finds the leaves to edit, and builds their replacements in free memory.
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

// over reports whether the worst path of a class would exceed both the bound and its current length. The paths of the set are upper
// bounds. If they say yes, over measures the true paths and decides again.
func (x *exchange) over() bool {
	if !x.pathsOver() {
		return false
	}
	x.s.paths.measure(x.s.mem)
	return x.pathsOver()
}

// pathsOver computes the paths after the change, and implements over for them.
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

// place chooses the group of a new rule, and adds the rule to the edits of its leaves. It returns false if no group takes the rule.
//
// A rule that overlaps a removed rule must go to the same tree. Then a key that matches both reaches a leaf in which a single store
// exchanges the two.
func (x *exchange) place(c int, r *rule) bool {
	s := x.s
	add := func(e *edit) { e.add = append(e.add, r) }

	old := uint8(0) // bitmap of the groups of removed rules that overlap r
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

	// No tree takes the rule, so it needs a new one. That replaces the fork, and with it the words that lead to the roots. So there
	// must be no edit of a root yet.
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

// groupAt returns the word that holds the root of a tree.
func (s *Set) groupAt(c, g int) int {
	if root := s.mem.load(c); root.Kind() == KindFork {
		return root.Base() + 2*g
	}
	return c
}

// grow gives a class another, empty tree. It returns false if there is no memory for the larger fork.
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

// visit calls f for each leaf of a tree in which a rule is, or would be. If there are more than limit, it returns false. f may be nil,
// just to count.
func (x *exchange) visit(c, g int, r *rule, limit int, f func(*edit)) bool {
	e := edit{
		at:     x.s.groupAt(c, g),
		class:  c,
		group:  g,
		region: x.s.regions[c],
	}
	return x.walk(&e, r, &limit, f)
}

// walk implements visit from the node of e on. It restores e before it returns.
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

// editOf returns the edit of the leaf at e. It makes one if need be.
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

	// Cuts take too many words. A list takes few.
	b.undo(mark)
	b.err = nil
	b.depth = e.depth
	b.listByHash = map[uint64]int32{}
	b.leaf = len(rules)
	b.quota = math.MaxInt
	e.node = b.build(order, hid)
}

// rulesOf returns the rules of a leaf before its edit. If the edit removes a rule that hides others, rulesOf includes these. Otherwise
// hid says whether rules remain hidden.
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

// isHidden reports whether rules were left out of a leaf, because another rule covers it.
func (s *Set) isHidden(n Node) bool {
	if n.Kind() == KindList {
		n = n.ruleAt(s.mem.words, n.Count()-1)
	}
	return n&hidden != 0
}
