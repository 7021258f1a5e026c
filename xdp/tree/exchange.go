package tree

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Leaves that a new rule may be in, of one tree: of any tree, of the tree of the rule that it replaces.
const (
	leavesOfAdded    = 64
	leavesOfExchange = 1024
)

// mostEdits is the number of leaves, or of the set's rules if these are more, above which trees are built anew.
const mostEdits = 4096

// errShape: the trees cannot take the change leaf by leaf.
var errShape = errors.New("tree: the trees must be built again")

// edit is a leaf that an exchange replaces by one store.
type edit struct {
	at     int // word of the memory
	class  int
	group  int
	depth  int
	region region
	remove []*rule
	add    []*rule
	rank   uint64 // by which it is ordered among the edits that add, or that only remove
	node   Node   // that is stored
}

// exchange is a change while it is planned, invisible to programs.
type exchange struct {
	s      *Set
	edits  []*edit
	at     map[int]*edit
	remove []*rule
	add    []*rule
	bound  int   // as Set.Bound
	paths  paths // after the change
}

// Exchange removes the rules of these entries and adds others, all or nothing. A key that an old and a new rule match
// always finds one of the two: a leaf is exchanged by one store, and where that is not enough the whole tree is. The
// memory of replaced nodes is retired. ErrFull: reclaim retired memory after a grace period, and try again. An error may be
// a [CostError].
func (s *Set) Exchange(remove []Entry, add []Rule) error {
	x := exchange{s: s, at: map[int]*edit{}}
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
	built := s.built
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
	if s.built == built {
		s.changes += len(x.remove) + len(x.add)
	}
	return nil
}

// apply changes leaves, or builds the trees anew.
func (x *exchange) apply(gone map[*rule]bool) error {
	s := x.s
	many := len(x.add) > 32 && 4*len(x.add) > len(s.ruleByEntry)
	// Building the trees of a few rules takes less time than taking many others out of their leaves.
	fewStay := len(x.add) == 0 && 2*len(x.remove) > len(s.ruleByEntry)+32
	if fewStay && x.rebuild(gone) == nil {
		return nil
	}
	if !many && s.decayed() {
		s.divided = true
		if x.rebuild(gone) == nil {
			return nil
		}
		s.changes = 0 // the next attempt is after as many changes again
	}
	if many {
		s.divided = false
		return x.rebuild(gone)
	}
	if x.plan() != nil {
		s.divided = true
		return x.rebuild(gone)
	}
	x.commit()
	return nil
}

// rebuild makes all trees anew, with the change.
func (x *exchange) rebuild(gone map[*rule]bool) error {
	rules := make([]*rule, 0, len(x.s.ruleByEntry)+len(x.add))
	for _, r := range x.s.ruleByEntry {
		if !gone[r] {
			rules = append(rules, r)
		}
	}
	return x.s.replace(append(rules, x.add...), x.bound)
}

// plan finds the leaves of the change, and builds their successors.
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

// over reports whether a class has a worst path above the bound after the change, and a longer one than before.
func (x *exchange) over() bool {
	s := x.s
	for exact := range 2 {
		if exact == 1 {
			s.paths.measure(s.mem)
		}
		x.paths = s.paths
		for _, e := range x.edits {
			x.paths.raise(s.mem, e)
		}
		is := false
		for c := range Classes {
			n := s.groupCount(c)
			now, was := x.paths.sum(c, n).Steps(), s.paths.sum(c, n).Steps()
			is = is || x.bound > 0 && now > x.bound && now > was
		}
		if !is {
			return false
		}
	}
	return true
}

// place chooses the group of a new rule, and adds the rule to its leaves.
func (x *exchange) place(c int, r *rule) bool {
	s := x.s
	add := func(e *edit) { e.add = append(e.add, r) }
	old := uint8(0)
	for _, o := range x.remove {
		if o.groups[c] != 0 && o.overlaps(r) {
			old |= o.groups[c]
		}
	}
	count := s.groupCount(c)
	// A key that both match comes to one leaf, where one store exchanges the rules, if both are in one tree.
	if old&(old-1) != 0 {
		return false
	}
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
	// An edit of a root would be in the fork that was.
	rooted := slices.ContainsFunc(x.edits, func(e *edit) bool { return e.class == c && e.depth == 0 })
	if old != 0 || count == MaxGroups || rooted || !s.grow(c) {
		return false
	}
	r.groups[c] = 1 << count
	return x.visit(c, count, r, 1, add)
}

// groupCount is the number of trees of a class.
func (s *Set) groupCount(c int) int {
	if root := s.mem.load(c); root.Kind() == KindFork {
		return root.Count()
	}
	return 1
}

// groupAt is the word of a tree's root.
func (s *Set) groupAt(c, g int) int {
	if root := s.mem.load(c); root.Kind() == KindFork {
		return root.Base() + 2*g
	}
	return c
}

// grow gives a class one more tree, which is empty.
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
	s.mem.words[base+2*n], s.mem.words[base+2*n+1] = 0, NoRank
	s.mem.store(c, newFork(base, n+1))
	if old.Kind() == KindFork {
		s.mem.retire(old.Base())
	}
	s.raise(c)
	return true
}

// visit calls f with each leaf of a tree into which the rule comes. Above the limit it returns false.
func (x *exchange) visit(c, g int, r *rule, limit int, f func(*edit)) bool {
	e := edit{at: x.s.groupAt(c, g), class: c, group: g, region: x.s.regions[c]}
	return x.walk(&e, r, &limit, f)
}

func (x *exchange) walk(e *edit, r *rule, limit *int, f func(*edit)) bool {
	n := x.s.mem.load(e.at)
	if n.Kind() != KindCut {
		if *limit--; *limit < 0 {
			return false
		}
		if f != nil {
			known := x.at[e.at]
			if known == nil {
				copied := *e
				known = &copied
				x.at[e.at] = known
				x.edits = append(x.edits, known)
			}
			f(known)
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

// successor builds the node of an edit.
func (x *exchange) successor(b *builder, e *edit) {
	s := x.s
	old := s.mem.load(e.at)
	hid := Node(0)
	rules := s.leafRules(old)
	if s.isHidden(old) {
		hid = hidden
		for _, r := range e.remove {
			if r.covers(&e.region) {
				hid = 0
			}
		}
		if hid == 0 {
			// The rules behind the removed one appear.
			rules = rules[:0]
			for _, r := range s.ruleByEntry {
				if r.groups[e.class]>>e.group&1 != 0 && r.in(&e.region) {
					rules = append(rules, r)
				}
			}
		}
	}
	rules = slices.DeleteFunc(rules, func(r *rule) bool { return slices.Contains(e.remove, r) })
	rules = append(rules, e.add...)
	slices.SortFunc(rules, func(a, b *rule) int { return cmp.Compare(a.rank, b.rank) })
	b.begin(rules, true)
	order := b.order()
	b.region, b.depth = e.region, e.depth
	b.words, b.leaf, b.quota = 4, 1, 64+16*len(rules)
	mark := len(b.blocks)
	if e.node = b.build(order, hid); errors.Is(b.err, errQuota) {
		b.undo(mark)
		b.err, b.depth, b.lists = nil, e.depth, map[uint64]int32{}
		b.leaf, b.quota = len(rules), math.MaxInt
		e.node = b.build(order, hid)
	}
}

// leafRules are the rules of a leaf.
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

func (s *Set) isHidden(n Node) bool {
	if n.Kind() == KindList {
		n = n.ruleAt(s.mem.words, n.Count()-1)
	}
	return n&hidden != 0
}
