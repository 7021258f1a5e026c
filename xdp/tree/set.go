package tree

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrDense is returned when more than MaxList rules match one key, on the way of every group, so that a program
// would have to compare more entries than it can. The set is as before.
var ErrDense = errors.New("tree: too many rules match one packet")

// CostError is returned when the worst path of a class would be longer than Set.Bound. The set is as before.
type CostError struct {
	Class   int
	Worst   Path
	Bound   int
	Entries []Entry // of the leaves at which the worst path ends, the longest leaf first
}

// Error implements error.
func (e *CostError) Error() string {
	return fmt.Sprintf("tree: a key of class %d may touch %d nodes and %d entries, %d in all: more than %d", e.Class, e.Worst.Nodes, e.Worst.Entries, e.Worst.Steps(), e.Bound)
}

// Options of a Set.
type Options struct {
	Class ClassBits
}

// Set is the builder's side of the memory: it has all rules, and changes the trees. One goroutine uses it at a time.
type Set struct {
	mem     *memory
	class   ClassBits
	regions [Classes]region
	rules   map[Node]*rule // by entry
	builder *builder       // of the last change
	changes int            // rules added and removed since the trees were built
	one     bool           // the trees were built without groups
	divided bool           // they are not to be built so: the set changes much
	built   int            // how often they were built

	// Bound is the most steps of the worst path of a class that Exchange makes when it adds more rules than it removes.
	// Where the worst path is above it already, such an exchange does not make it longer. 0: no bound.
	Bound int
	// Stop is called again and again while Build and Exchange work. Its error ends them, and the set stays as it is. nil:
	// nothing ends them.
	Stop func() error
	// paths are at least as long as the longest way through each tree.
	paths paths
}

// New makes an empty set in the memory, which no program walks yet. The memory is a multiple of 32 words.
func New(mem []uint64, o Options) *Set {
	s := newSet(newMemory(mem), o)
	s.clear()
	s.paths.measure(s.mem)
	return s
}

func newSet(mem *memory, o Options) *Set {
	s := &Set{mem: mem, class: o.Class, rules: map[Node]*rule{}}
	w := o.Class.Word
	v4, v6 := be64(o.Class.IPv4), be64(o.Class.IPv6)
	for c, value := range [Classes]uint64{0, v4, v6} {
		s.regions[c].known[w], s.regions[c].value[w] = v4|v6, value
	}
	return s
}

// stopped returns the error of Stop.
func (s *Set) stopped() error {
	if s.Stop == nil {
		return nil
	}
	return s.Stop()
}

// clear empties the header: no program finds a rule.
func (s *Set) clear() {
	clear(s.mem.words[:headerWords])
	s.mem.words[versionWord] = Version
}

// Build makes these the rules of the set. Programs find either the rules of before or these; which of both may
// differ between classes until it returns. The memory of the trees of before is retired. Without room, or with too
// many rules in one place, the set stays as it is.
func (s *Set) Build(rules []Rule) error {
	made := make([]*rule, len(rules))
	byEntry := make(map[Node]*rule, len(rules))
	for i := range rules {
		r, err := s.newRule(&rules[i])
		if err != nil {
			return err
		}
		if byEntry[r.entry] != nil {
			return fmt.Errorf("tree: two rules have entry %#x", rules[i].Entry)
		}
		made[i], byEntry[r.entry] = r, r
	}
	s.divided = false
	if err := s.replace(made, 0); err != nil {
		return err
	}
	s.rules = byEntry
	return nil
}

func (s *Set) newRule(r *Rule) (*rule, error) {
	if Node(r.Entry)&^entryBits != 1 || r.Rank == NoRank {
		return nil, fmt.Errorf("tree: entry %#x or rank %#x is reserved", r.Entry, r.Rank)
	}
	n := newRule(r)
	for c := range s.regions {
		if n.in(&s.regions[c]) {
			n.classes |= 1 << c
		}
	}
	return n, nil
}

// rearrange builds the trees anew from the rules, into free memory.
func (s *Set) rearrange() error {
	rules := make([]*rule, 0, len(s.rules))
	for _, r := range s.rules {
		rules = append(rules, r)
	}
	return s.replace(rules, 0)
}

// replace builds the trees of rules, stores their roots, and retires the trees of before. bound is as Set.Bound.
func (s *Set) replace(rules []*rule, bound int) error {
	slices.SortFunc(rules, func(a, b *rule) int { return cmp.Compare(a.rank, b.rank) })
	var err error
	var costly *CostError // of the trees with the shortest worst path
	for _, quota := range quotas {
		if quota == oneTree && (s.divided || len(rules) > oneTreeRules) {
			continue
		}
		if err := s.stopped(); err != nil {
			return err
		}
		b := s.newBuilder()
		var roots [Classes]Node
		for c := range roots {
			roots[c] = b.class(rules, c, s.regions[c], quota)
		}
		if b.err == nil && quota > 0 && b.size() > s.mem.most() {
			b.err = errQuota
		}
		if err = b.err; err != nil {
			b.undo(0)
			if errors.Is(err, ErrFull) && s.mem.waiting > 0 {
				return err // retired memory would make better trees
			}
			continue
		}
		if over := s.over(roots, bound); over != nil {
			if costly == nil || over.Worst.Steps() < costly.Worst.Steps() {
				costly = over
			}
			b.undo(0)
			continue
		}
		for c, root := range roots {
			old := s.mem.load(c)
			s.mem.store(c, root)
			s.retireTree(old)
		}
		s.paths.measure(s.mem)
		for _, r := range rules {
			r.groups = r.planned
		}
		s.changes, s.one = 0, quota == oneTree
		s.built++
		return nil
	}
	if costly != nil {
		return costly
	}
	return err
}

// over returns an error if a class of these roots has a worst path above the bound, and a longer one than it has now.
func (s *Set) over(roots [Classes]Node, bound int) *CostError {
	for c, root := range roots {
		worst := longest(s.mem.words, root, nil)
		if bound > 0 && worst.Steps() > bound && worst.Steps() > longest(s.mem.words, s.mem.load(c), nil).Steps() {
			return &CostError{c, worst, bound, s.onLongest(root)}
		}
	}
	return nil
}

// retireTree retires every block of a tree that has no parent any more.
func (s *Set) retireTree(n Node) {
	if n.Kind() == KindRule {
		return
	}
	switch n.Kind() {
	case KindCut:
		for i := range n.size() {
			s.retireTree(s.mem.load(n.Base() + i))
		}
	case KindFork:
		for i := range n.Count() {
			s.retireTree(s.mem.load(n.Base() + 2*i))
		}
	}
	s.mem.retire(n.Base())
}

// decayed reports whether so many rules came and went since the trees were built that they should be built again.
func (s *Set) decayed() bool { return s.changes > max(64, len(s.rules)) }

// Reclaim frees retired memory. Every program that ran when the last change returned has ended.
func (s *Set) Reclaim() { s.mem.reclaim() }
