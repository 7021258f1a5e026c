package tree

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrDense means that more than MaxList rules match one key in every group. A program cannot compare that many. The set is unchanged.
var ErrDense = errors.New("tree: too many rules match one packet")

// CostError means that the worst path of a class would exceed Set.Bound. The set is unchanged.
type CostError struct {
	Class   int
	Worst   Path
	Bound   int
	Entries []Entry // of the leaves at the end of the worst path, beginning with the longest leaf
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

// Set is a set of rules and their trees in memory walked by programs. It is not safe for concurrent use.
type Set struct {
	// Bound limits the steps of the worst path of a class. It applies to an Exchange that adds more rules than it removes. If
	// a path exceeds Bound already, such an Exchange may not make it longer. 0 means no bound.
	Bound int

	// Stop is called frequently during Build and Exchange. If it returns an error, they return that error and leave the set
	// unchanged. Stop may be nil.
	Stop func() error

	mem         *memory
	class       ClassBits
	regions     [Classes]region // all keys of each class
	ruleByEntry map[Node]*rule
	paths       paths    // upper bounds of the longest path through each tree
	builder     *builder // of the last change, for its scratch memory

	built   int  // how often all trees were built
	single  bool // the current trees are single trees
	divided bool // build groups next time, because the set changes too much for a single tree
	changes int  // rules added and removed since the trees were built
}

// New makes an empty set. No program may walk the memory yet. Its length must be a multiple of 32 words.
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

// clear empties the trees. Afterwards programs find no rule.
func (s *Set) clear() {
	clear(s.mem.words[:headerWords])
	s.mem.words[versionWord] = Version
}

// Build replaces all rules of the set. Each class switches from the old rules to the new ones with a single store of its root. The
// memory of the old trees is retired. On an error, such as ErrFull or ErrDense, the set is unchanged.
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

// newRule checks a rule and determines its classes.
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

// replace builds trees of rules, stores their roots, and retires the old trees. It tries the quotas in order, because more memory
// makes faster trees. See Set.Bound for bound.
func (s *Set) replace(rules []*rule, bound int) error {
	slices.SortFunc(rules, func(a, b *rule) int { return cmp.Compare(a.rank, b.rank) })

	var err error
	var costly *CostError // of the attempt with the shortest worst path
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
				return err // let the caller reclaim retired memory, which is better than a smaller quota
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

// install stores new roots, and retires the old trees.
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

// over returns an error if the worst path of a new root exceeds both the bound and the current path of its class.
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

// retireTree retires all blocks of a tree that has just been replaced.
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

// decayed reports whether the trees should be built again. Exchange edits leaves, and never moves a cut, so the cuts fit the rules
// less and less.
func (s *Set) decayed() bool { return s.changes > max(64, len(s.ruleByEntry)) }

// Reclaim frees retired memory. The caller must have waited for a grace period since the last change.
func (s *Set) Reclaim() { s.mem.reclaim() }
