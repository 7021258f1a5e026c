package xdp

import (
	"cmp"
	"log/slog"
	"slices"

	"github.com/flowtally/flowtally/xdp/tree"
)

// tables is the classifier of bpf/tables.h: a hash table for a few masks (tuple space search), and decision trees for the
// other rules. The maps hold all that the next process needs: entries, their directory and the hashed masks.
//
// A tuple is the rules of one mask. An entry is one rule in memory. A chain is the entries of one key, of which programs see
// the best.
//
// A change of rules has three parts: pair, come and leave (exchange.go). Some rules can be found by attached programs at
// once. For others, load makes programs with other constants (tables_load.go). One goroutine at a time calls any method.
type tables struct {
	g      geometry
	log    *slog.Logger
	secret *secret
	store  tableStore

	// Memory that programs read.
	entries *entryStore
	table   hashTable
	singles []uint64 // the slots of single tuples, by id
	ranks   []uint64 // by place of a tuple in the programs; see setRanks
	forest  forest

	// What the owner of the tables does for them.
	grace func() error      // returns when every program that runs now has ended
	load  func() error      // exchanges all programs; see constants
	hooks map[hookKey]*hook // with programs that read the tables

	tuples         [maxTuples]*tuple // hashed or single, by id
	treeTuples     map[words]*tuple  // in the trees, by mask
	count          int               // of rules
	rulesByCounter []uint32

	// Of the attached programs.
	places []*tuple // by place
	need   uint32   // layers that they read, and whether they walk the trees
	rehash []*tuple // single there, and hashed in the next programs

	// Of the programs that are being loaded.
	next     []*tuple // by place; nil: no load is under way
	nextNeed uint32

	// How rules are placed.
	chosen     map[words]bool // masks that are to be hashed
	allInTrees bool           // no mask is to be hashed
	worstCost  int            // Options.WorstCost

	// dropped are the rules that the earlier process was adding when it died; see Datapath.Unfinished.
	dropped []Rule

	// Of the change under way.
	leaving  map[uint32]bool // entries that it removes or swaps: their ranks are free for others
	coming   []uint32        // entries of added rules, live once the change is committed
	pending  []*Rule         // rules that wait for a change of the trees, if the order is kept
	unloaded []*Rule         // rules that programs find after the next load
	wanted   uint32          // needOf all rules that come
	loads    int             // loads that may still be made to keep the order; 0: the order is not kept
	found    bool            // a packet may have found a rule of the change
}

// newTables makes tables without rules over the memory of the maps.
func newTables(g geometry, m *meta, s *secret, entries, slots, ranks []uint64, set *tree.Set) *tables {
	t := &tables{
		g:              g,
		secret:         s,
		store:          m,
		entries:        newEntryStore(entries, m.dir, g.units),
		singles:        slots[:maxTuples],
		ranks:          ranks[:maxTuples+1],
		treeTuples:     map[words]*tuple{},
		rulesByCounter: make([]uint32, g.counters),
		leaving:        map[uint32]bool{},
	}
	t.table = hashTable{
		slots: slots[maxTuples:][:g.slots],
		mask:  uint64(g.slots - 1),
		hash:  t.unitHash,
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
	return t
}

// tableStore keeps what the next process needs beside the entries: the masks by id, and which changes are under way.
type tableStore interface {
	setTuple(id uint8, mask *words)
	clearTuple(id uint8)
	setUnderWay(change uint64, is bool)
	underWay(change uint64) bool
}

// tupleFor returns the tuple that takes r, and makes it if need be. A mask without rules is hashed if choose has chosen it,
// and an id is left.
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

// goesIntoTrees reports whether r, which is to be added, goes into the trees. If it returns false and no id is left for the
// mask, r goes into the trees all the same.
func (t *tables) goesIntoTrees(r *Rule) bool {
	mask := r.Mask.words()
	return r.ranged() || t.hashedTuple(mask) == nil && (!t.chosen[*mask] || t.treeTuples[*mask] != nil)
}

// tuplesOf returns the tuples that may hold r, or nil in their places.
func (t *tables) tuplesOf(r *Rule) (all [2]*tuple) {
	if !r.ranged() {
		all[0] = t.hashedTuple(r.Mask.words())
	}
	all[1] = t.treeTuples[*r.Mask.words()]
	return all
}

// hashedTuple returns the tuple of a mask that is not in the trees, or nil.
func (t *tables) hashedTuple(mask *words) *tuple {
	for _, u := range t.tuples {
		if u != nil && u.mask == *mask {
			return u
		}
	}
	return nil
}

// treeTuple returns the tuple of a mask in the trees, and makes it if need be.
func (t *tables) treeTuple(mask *words) *tuple {
	u := t.treeTuples[*mask]
	if u == nil {
		u = newTuple(treeID, mask)
		t.treeTuples[*mask] = u
	}
	return u
}

// newTuple makes a tuple with an id that no program knows, or returns nil if all ids are taken.
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
		delete(t.treeTuples, u.mask)
		return
	}
	t.tuples[u.id] = nil
	t.store.clearTuple(u.id)
}

// everyTuple calls f for every tuple.
func (t *tables) everyTuple(f func(u *tuple)) {
	for _, u := range t.tuples {
		if u != nil {
			f(u)
		}
	}
	for _, u := range t.treeTuples {
		f(u)
	}
}

// rules lists the rules, best first.
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

// rule reads the rule of the entry at a unit, which is one of u.
func (t *tables) rule(u *tuple, unit uint32) Rule {
	if u.inTree() {
		return t.treeRule(unit)
	}
	r := t.ruleWithoutKey(unit)
	*r.Mask.words() = u.mask
	packed := t.entries.packed(unit, len(u.maskWords))
	for i, w := range u.maskWords {
		r.Key.words()[w] = packed[i]
	}
	return r
}

// treeRule reads the rule of the entry at a unit, which is one of the trees.
func (t *tables) treeRule(unit uint32) Rule {
	r := t.ruleWithoutKey(unit)
	t.entries.readTree(unit, &r)
	return r
}

// ruleWithoutKey reads rank, counter and action of the entry at a unit.
func (t *tables) ruleWithoutKey(unit uint32) Rule {
	d := t.entries.dirWord(unit)
	rank := t.entries.rank(unit)
	return Rule{
		Priority: uint16(rank >> 32),
		Order:    uint32(rank),
		Counter:  d.counter(),
		Drop:     d.drop(),
	}
}

// uses reports whether a rule counts on a counter.
func (t *tables) uses(counter uint32) bool { return t.rulesByCounter[counter] != 0 }

// stats fills in what Stats tells about rules.
func (t *tables) stats(s *Stats) {
	s.Rules = t.count
	s.MaxRules = t.g.rules
	s.Built = t.forest.set.Built()
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

// hashed returns the number of masks with rules that are not in the trees.
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
	for _, u := range t.treeTuples {
		for _, c := range u.chains {
			heads = append(heads, t.rule(u, c.entries[0]))
		}
	}
	return t.forest.check(heads)
}

// reclaim frees the memory of removed rules behind a grace period.
func (t *tables) reclaim() error {
	if err := t.grace(); err != nil {
		return err
	}
	t.entries.reclaim()
	t.forest.set.Reclaim()
	return nil
}

// hashOf returns the hash of a key of a tuple.
func (t *tables) hashOf(u *tuple, packed []uint64) uint64 {
	return t.secret.hash(u.id, u.maskWords, packed)
}

// unitHash returns the hash of the entry at a unit.
func (t *tables) unitHash(unit uint32) uint64 {
	u := t.tuples[t.entries.dirWord(unit).tuple()]
	return t.hashOf(u, t.entries.packed(unit, len(u.maskWords)))
}

// treeBound returns the part of worstCost that hashed masks leave to the trees. 0: no bound.
func (t *tables) treeBound() int {
	if t.worstCost == 0 {
		return 0
	}
	return max(1, t.worstCost-t.hashedCost().Steps())
}
