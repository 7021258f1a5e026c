package tree

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrDense means that more than MaxList rules match one key in each group, so that a program would have to compare more entries
// than it can. The set is as before.
var ErrDense = errors.New("tree: too many rules match one packet")

// CostError means that the worst path of a class would be longer than Set.Bound. The set is as before.
type CostError struct {
	Class   int
	Worst   Path
	Bound   int
	Entries []Entry // of the leaves at which the worst path ends, the longest leaf first
}

// Error implements error.
func (e *CostError) Error() string {
	return fmt.Sprintf("tree: a key of class %d may touch %d nodes and %d entries, %d in all: more than %d",
		e.Class, e.Worst.Nodes, e.Worst.Entries, e.Worst.Steps(), e.Bound)
}

// Options of a Set.
type Options struct {
	Class ClassBits
}

// Set is a set of rules and their trees in a memory that programs walk. One goroutine uses it at a time.
type Set struct {
	// Bound is the most steps of the worst path of a class. Only an Exchange that adds more rules than it removes keeps to
	// it. If the worst path is above Bound already, such an exchange does not make it longer. 0: no bound.
	Bound int

	// Stop is called again and again while Build and Exchange work. If it returns an error, they end with this error, and
	// the set stays as it is. nil: nothing ends them.
	Stop func() error

	mem         *memory
	class       ClassBits
	regions     [Classes]region // all keys of each class
	ruleByEntry map[Node]*rule
	paths       paths    // at least as long as the longest way through each tree
	builder     *builder // of the last change, for its scratch memory

	built   int  // how often the trees were built
	single  bool // the last time each class got a single tree
	divided bool // the next time each class gets groups: the set changes too much for a single tree
	changes int  // rules added and removed since
}

// New makes an empty set in a memory that no program walks yet. The memory is a multiple of 32 words.
func New(mem []uint64, o Options) *Set {
	s := newSet(newMemory(mem), o)
	s.clear()
	s.paths.measure(s.mem)
	return s
}

func newSet(mem *memory, o Options) *Set {
	s := &Set{
		mem:         mem,
		class:       o.Class,
		ruleByEntry: map[Node]*rule{},
	}

	w := o.Class.Word
	v4, v6 := be64(o.Class.IPv4), be64(o.Class.IPv6)
	for c, value := range [Classes]uint64{0, v4, v6} {
		s.regions[c].known[w] = v4 | v6
		s.regions[c].value[w] = value
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

// clear empties the trees: no program finds a rule.
func (s *Set) clear() {
	clear(s.mem.words[:headerWords])
	s.mem.words[versionWord] = Version
}

// Build makes these rules the rules of the set. Each class has its old rules until its root is stored, and the new ones behind
// that. The memory of the old trees is retired. If there is no room, or too many rules match one key, the set stays as it is.
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
	s.ruleByEntry = byEntry
	return nil
}

// newRule checks a rule, and finds its classes.
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

// rearrange builds the trees of the set anew, into free memory.
func (s *Set) rearrange() error {
	rules := make([]*rule, 0, len(s.ruleByEntry))
	for _, r := range s.ruleByEntry {
		rules = append(rules, r)
	}
	return s.replace(rules, 0)
}

// replace builds the trees of rules, stores their roots, and retires the old trees. It tries one quota of memory after the
// other: the first gives the fastest trees. bound is as Set.Bound.
func (s *Set) replace(rules []*rule, bound int) error {
	slices.SortFunc(rules, func(a, b *rule) int { return cmp.Compare(a.rank, b.rank) })

	var err error
	var costly *CostError // of the try with the shortest worst path
	for _, quota := range quotas {
		if quota == singleTree && (s.divided || len(rules) > singleTreeRules) {
			continue
		}
		if err := s.stopped(); err != nil {
			return err
		}

		b := s.newBuilder()
		roots := b.roots(rules, &s.regions, quota)
		if err = b.err; err != nil {
			b.undo(0)
			if errors.Is(err, ErrFull) && s.mem.waiting > 0 {
				return err // the caller reclaims retired memory, which makes better trees than the next quota
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

		s.install(roots, rules)
		s.single = quota == singleTree
		return nil
	}
	if costly != nil {
		return costly
	}
	return err
}

// install stores the roots of trees that were built for rules, and retires the old trees.
func (s *Set) install(roots [Classes]Node, rules []*rule) {
	for c, root := range roots {
		old := s.mem.load(c)
		s.mem.store(c, root)
		s.retireTree(old)
	}
	for _, r := range rules {
		r.groups = r.planned
	}
	s.paths.measure(s.mem)
	s.changes = 0
	s.built++
}

// over returns an error if one of these roots has a worst path above the bound, and a longer one than its class has now.
func (s *Set) over(roots [Classes]Node, bound int) *CostError {
	for c, root := range roots {
		worst := longest(s.mem.words, root, nil)
		if bound > 0 && worst.Steps() > bound && worst.Steps() > longest(s.mem.words, s.mem.load(c), nil).Steps() {
			return &CostError{
				Class:   c,
				Worst:   worst,
				Bound:   bound,
				Entries: s.onLongest(root),
			}
		}
	}
	return nil
}

// retireTree retires all blocks of a tree to which no word leads any more.
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

// decayed reports whether so many rules have come and gone since the trees were built that they should be built again: changes of
// leaves do not choose better cuts.
func (s *Set) decayed() bool { return s.changes > max(64, len(s.ruleByEntry)) }

// Reclaim frees retired memory. The caller knows that every program which ran when the last change returned has ended.
func (s *Set) Reclaim() { s.mem.reclaim() }
