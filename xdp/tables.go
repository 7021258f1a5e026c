package xdp

import (
	"cmp"
	"log/slog"
	"slices"

	"github.com/flowtally/flowtally/xdp/tree"
)

// tables is the writer of the classifier in bpf/tables.h: a hash table for a few masks (tuple space search), and decision trees for
// all other rules. Everything the next process needs is in the maps: entries, their directory and the hashed masks.
//
// A tuple has the rules of one mask. An entry is one rule in memory. A chain has the entries of one key, best first. Programs see
// only the first.
//
// A change of rules consists of pair, come and leave (exchange.go). The attached programs find most new rules at once. For others,
// load exchanges the programs (tables_load.go). tables is not safe for concurrent use.
type tables struct {
	g      geometry
	log    *slog.Logger
	secret *secret
	store  tableStore

	// Memory that programs read.
	entries *entryStore
	table   hashTable
	singles []uint64 // the slots of single tuples, by id
	ranks   []uint64 // by place of a tuple in the programs; see tables_ranks.go
	forest  forest

	// Provided by the owner of the tables.
	grace func() error      // waits until every program running now has ended
	load  func() error      // exchanges all programs; see constants
	hooks map[hookKey]*hook // whose programs read the tables

	tuples         [maxTuples]*tuple // hashed and single tuples, by id
	treeTuples     map[words]*tuple  // tuples in the trees, by mask
	count          int               // number of rules
	rulesByCounter []uint32

	// Of the attached programs.
	places []*tuple // in the order in which programs search them
	need   uint64   // layers they parse, and needTree if they walk the trees
	rehash []*tuple // single for these programs, hashed for the next ones

	// Of programs being loaded.
	next     []*tuple // as places; nil if no load is under way
	nextNeed uint64

	// Where rules go.
	chosen     map[words]bool // masks to hash; see choose
	allInTrees bool           // hash no mask
	worstCost  int            // Options.WorstCost

	// dropped are the rules that an earlier process was adding when it died. See Datapath.Unfinished.
	dropped []Rule

	// Of the change under way.
	leaving  map[uint32]bool // entries being removed or swapped: other rules may have their ranks
	coming   []uint32        // entries of added rules; commit makes them live
	pending  []*Rule         // changed in the trees with the next flush; only while run keeps its order
	unloaded []*Rule         // rules that only the next programs will find
	wanted   uint64          // the union of needOf over all added rules
	loads    int             // loads that run may still spend on its order; 0: it does not keep the order
	found    bool            // a packet may have found a rule of this change
}

// newTables makes empty tables over the memory of the maps.
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

// tableStore persists what the next process needs besides the entries: the hashed masks, and the changes under way.
type tableStore interface {
	setTuple(id uint8, mask *words)
	clearTuple(id uint8)
	setUnderWay(change uint64, is bool)
	underWay(change uint64) bool
}

// tupleFor returns the tuple for a new rule, and makes it if need be. A new mask is hashed if choose has chosen it and there is a free
// id.
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

// goesIntoTrees reports whether a new rule is meant for the trees. Even if it returns false, tupleFor puts the rule there when all ids
// are taken.
func (t *tables) goesIntoTrees(r *Rule) bool {
	mask := r.Mask.words()
	return r.ranged() || t.hashedTuple(mask) == nil && (!t.chosen[*mask] || t.treeTuples[*mask] != nil)
}

// tuplesOf returns the tuples that may contain r: the hashed one and the one in the trees. Either may be nil.
func (t *tables) tuplesOf(r *Rule) (all [2]*tuple) {
	if !r.ranged() {
		all[0] = t.hashedTuple(r.Mask.words())
	}
	all[1] = t.treeTuples[*r.Mask.words()]
	return all
}

// hashedTuple returns the hashed or single tuple of a mask, or nil.
func (t *tables) hashedTuple(mask *words) *tuple {
	for _, u := range t.tuples {
		if u != nil && u.mask == *mask {
			return u
		}
	}
	return nil
}

// treeTuple returns the tuple of a mask in the trees. It makes one if need be.
func (t *tables) treeTuple(mask *words) *tuple {
	u := t.treeTuples[*mask]
	if u == nil {
		u = newTuple(treeID, mask)
		t.treeTuples[*mask] = u
	}
	return u
}

// newTuple makes a tuple with a free id. It returns nil if all ids are taken.
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

// dropTuple removes an empty tuple. The attached programs must not search it.
func (t *tables) dropTuple(u *tuple) {
	if u.inTree() {
		delete(t.treeTuples, u.mask)
		return
	}
	t.tuples[u.id] = nil
	t.store.clearTuple(u.id)
}

// everyTuple calls f for every tuple, in no particular order.
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

// rule reads the rule of an entry of u.
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

// treeRule reads the rule of an entry in the trees.
func (t *tables) treeRule(unit uint32) Rule {
	r := t.ruleWithoutKey(unit)
	t.entries.readTree(unit, &r)
	return r
}

// ruleWithoutKey reads the parts of a rule that every entry stores alike: rank, counter and action.
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

// uses reports whether any rule counts on a counter.
func (t *tables) uses(counter uint32) bool { return t.rulesByCounter[counter] != 0 }

// stats fills in the figures about rules.
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

// hashed returns the number of masks in the hash table.
func (t *tables) hashed() (n int) {
	for _, u := range t.tuples {
		if u != nil && u.rules > 0 {
			n++
		}
	}
	return n
}

// check compares the trees with a linear matcher. See forest.check.
func (t *tables) check() error {
	heads := make([]Rule, 0, t.count)
	for _, u := range t.treeTuples {
		for _, c := range u.chains {
			heads = append(heads, t.rule(u, c.entries[0]))
		}
	}
	return t.forest.check(heads)
}

// reclaim waits for a grace period, and frees the memory of removed rules.
func (t *tables) reclaim() error {
	if err := t.grace(); err != nil {
		return err
	}
	t.entries.reclaim()
	t.forest.set.Reclaim()
	return nil
}

// hashOf returns the hash of a packed key of u.
func (t *tables) hashOf(u *tuple, packed []uint64) uint64 {
	return t.secret.hash(u.id, u.maskWords, packed)
}

// unitHash returns the hash of the key of an entry. The entry must be in the hash table.
func (t *tables) unitHash(unit uint32) uint64 {
	u := t.tuples[t.entries.dirWord(unit).tuple()]
	return t.hashOf(u, t.entries.packed(unit, len(u.maskWords)))
}

// treeBound returns the part of worstCost left for the trees after the hash table. 0 means no bound.
func (t *tables) treeBound() int {
	if t.worstCost == 0 {
		return 0
	}
	return max(1, t.worstCost-t.hashedCost().Steps())
}
