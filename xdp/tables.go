package xdp

import (
	"cmp"
	"log/slog"
	"slices"

	"github.com/flowtally/flowtally/xdp/tree"
)

// tables is the classifier of bpf/tables.h: tuple space search over a few masks, and trees. The maps hold
// everything that the next process needs after a crash: entries, their directory and the masks that are hashed.
//
// A change has three parts: pair, come and leave. Rules come into the memory of the attached programs, or of the
// programs loaded next: load loads these with constants and, an RCU grace period after the last hook runs the new ones,
// calls finishLoad. All calls come from one goroutine at a time.
type tables struct {
	g       geometry
	entries *entryStore
	table   hashTable
	singles []uint64 // slots of the tuples of one rule, by id
	ranks   []uint64 // by place
	store   tableStore
	secret  *secret
	grace   func() error      // returns when no program runs that ran before
	load    func() error      // exchanges all programs
	hooks   map[hookKey]*hook // that run programs
	log     *slog.Logger

	tuples   [maxTuples]*tuple // that are hashed, by id
	treed    map[words]*tuple  // in the trees, by mask
	forest   forest
	places   []*tuple // by place in the programs that run
	need     uint32   // of the programs that run
	next     []*tuple // the same of those being loaded
	nextNeed uint32
	rehash   []*tuple // single in the programs that run, hashed in the next
	count    int
	refs     []uint32        // rules by counter
	leaving  map[uint32]bool // entries that a change under way moves or removes
	chosen   map[words]bool  // masks that are to be hashed
	unhashed bool            // no mask is to be hashed
	dropped  []Rule          // by recover: the last process was adding them; see RuleSet.Unfinished
	// worstCost is Options.WorstCost.
	worstCost int

	// Of the change under way:
	coming   []uint32 // entries of added rules, live once the change is committed
	pending  []*Rule  // that come or go when the trees are changed, if the change keeps to an order
	unloaded []*Rule  // that come with the next load
	wanted   uint32   // layers of all rules that come
	loads    int      // that may still be made for the order; 0: it keeps to none
	found    bool     // programs may have found a rule of it
}

// newTables makes tables without rules over the memory of the maps.
func newTables(g geometry, m *meta, s *secret, entries, slots, ranks []uint64, set *tree.Set) *tables {
	t := &tables{
		g: g, entries: newEntryStore(entries, m.dir, g.units), singles: slots[:maxTuples], ranks: ranks[:maxTuples+1], treed: map[words]*tuple{},
		store: m, secret: s, refs: make([]uint32, g.counters), leaving: map[uint32]bool{},
	}
	t.forest = forest{
		set:     set,
		entries: t.entries,
		best:    noRank,
		reclaim: t.reclaim,
		bound:   t.treeBound,
		outside: func(fn func()) { fn() },
		costly:  t.costly,
	}
	t.table = hashTable{slots: slots[maxTuples:][:g.slots], mask: uint64(g.slots - 1), hash: t.unitHash}
	return t
}

// tableStore keeps what must outlive the process: the masks by id, and the changes under way.
type tableStore interface {
	setTuple(id uint8, mask *words)
	clearTuple(id uint8)
	setUnderWay(change uint64, is bool)
	underWay(change uint64) bool
}

// hashedTuple returns the tuple of a mask whose rules are in the slot table, or nil.
func (t *tables) hashedTuple(mask *words) *tuple {
	for _, u := range t.tuples {
		if u != nil && u.mask == *mask {
			return u
		}
	}
	return nil
}

// tuplesOf returns the tuples that may hold r.
func (t *tables) tuplesOf(r *Rule) (all [2]*tuple) {
	if !r.ranged() {
		all[0] = t.hashedTuple(r.Mask.words())
	}
	all[1] = t.treed[*r.Mask.words()]
	return all
}

// everyTuple calls f for every tuple.
func (t *tables) everyTuple(f func(u *tuple)) {
	for _, u := range t.tuples {
		if u != nil {
			f(u)
		}
	}
	for _, u := range t.treed {
		f(u)
	}
}

// tupleFor returns the tuple that takes r. A mask without rules is hashed if choose has chosen it.
func (t *tables) tupleFor(r *Rule) *tuple {
	mask := r.Mask.words()
	if !t.goesIntoTrees(r) {
		if u := t.hashedTuple(mask); u != nil {
			return u
		}
		if u := t.newTuple(mask); u != nil {
			return u
		}
	}
	return t.treeTuple(mask)
}

// goesIntoTrees reports whether r, which is to be added, comes into the trees. A rule for whose mask no id is left does so
// too.
func (t *tables) goesIntoTrees(r *Rule) bool {
	mask := r.Mask.words()
	return r.ranged() || t.hashedTuple(mask) == nil && (!t.chosen[*mask] || t.treed[*mask] != nil)
}

func (t *tables) treeTuple(mask *words) *tuple {
	u := t.treed[*mask]
	if u == nil {
		u = newTuple(treeTuple, mask)
		t.treed[*mask] = u
	}
	return u
}

// newTuple takes an id that no program knows, or returns nil when all are taken.
func (t *tables) newTuple(mask *words) *tuple {
	for id, u := range t.tuples {
		if u == nil {
			u = newTuple(uint8(id), mask)
			t.tuples[id] = u
			t.store.setTuple(u.id, mask)
			return u
		}
	}
	return nil
}

// dropTuple forgets a tuple without rules that no program knows.
func (t *tables) dropTuple(u *tuple) {
	if u.inTree() {
		delete(t.treed, u.mask)
		return
	}
	t.tuples[u.id] = nil
	t.store.clearTuple(u.id)
}

func (t *tables) reclaim() error {
	if err := t.grace(); err != nil {
		return err
	}
	t.entries.reclaim()
	t.forest.set.Reclaim()
	return nil
}

// hashOf is the hash of a key of a tuple.
func (t *tables) hashOf(u *tuple, packed []uint64) uint64 {
	return t.secret.hash(u.id, u.word, packed)
}

// unitHash is the hash of the entry at unit.
func (t *tables) unitHash(unit uint32) uint64 {
	u := t.tuples[t.entries.dirWord(unit).tuple()]
	return t.hashOf(u, t.entries.packed(unit, len(u.word)))
}

// treeBound is the part of worstCost that hashed masks leave to the trees.
func (t *tables) treeBound() int {
	if t.worstCost == 0 {
		return 0
	}
	return max(1, t.worstCost-t.hashedCost().Steps())
}

// hashed is the number of masks that are hashed.
func (t *tables) hashed() (n int) {
	for _, u := range t.tuples {
		if u != nil && u.rules > 0 {
			n++
		}
	}
	return n
}

// check compares the trees with a linear matcher.
func (t *tables) check() error {
	heads := make([]Rule, 0, t.count)
	for _, u := range t.treed {
		for _, c := range u.chains {
			heads = append(heads, t.rule(u, c.entries[0]))
		}
	}
	return t.forest.check(heads)
}

func (t *tables) rules() []Rule {
	all := make([]Rule, 0, t.count)
	t.everyTuple(func(u *tuple) {
		for _, c := range u.chains {
			for _, e := range c.entries {
				all = append(all, t.rule(u, e))
			}
		}
	})
	slices.SortFunc(all, func(a, b Rule) int { return cmp.Compare(a.rank(), b.rank()) })
	return all
}

func (t *tables) rule(u *tuple, unit uint32) Rule {
	d, rank := t.entries.dirWord(unit), t.entries.rank(unit)
	r := Rule{Priority: uint16(rank >> 32), Order: uint32(rank), Counter: d.counter(), Drop: d.drop()}
	if u.inTree() {
		t.entries.readTree(unit, &r)
		return r
	}
	*r.Mask.words() = u.mask
	packed := t.entries.packed(unit, len(u.word))
	for i, w := range u.word {
		r.Key.words()[w] = packed[i]
	}
	return r
}

func (t *tables) uses(counter uint32) bool { return t.refs[counter] != 0 }

func (t *tables) stats(s *Stats) {
	s.Rules, s.MaxRules, s.Built = t.count, t.g.rules, t.forest.set.Built()
	t.everyTuple(func(u *tuple) {
		if u.rules == 0 {
			return
		}
		s.Tuples++
		if !u.inTree() {
			s.Hashed++
		}
	})
}
