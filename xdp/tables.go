package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

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
	table   slotTable
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
	t.table = slotTable{slots: slots[maxTuples:][:g.slots], mask: uint64(g.slots - 1), hash: t.unitHash}
	return t
}

// tableStore keeps what must outlive the process: the masks by id, and the changes under way.
type tableStore interface {
	setTuple(id uint8, mask *words)
	clearTuple(id uint8)
	setUnderWay(change uint64, is bool)
	underWay(change uint64) bool
}

// rank orders rules: lower wins.
func (r *Rule) rank() uint64 { return uint64(r.Priority)<<32 | uint64(r.Order) }

const noRank = ^uint64(0)

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

// add puts a rule where programs find it, at once, after the flush or after the next load.
func (t *tables) add(r *Rule) error {
	if t.count >= t.g.rules {
		return fmt.Errorf("adding a rule: %w: the tables hold %d rules", ErrFull, t.g.rules)
	}
	for _, u := range t.tuplesOf(r) {
		if err := t.vacant(u, r); err != nil {
			return err
		}
	}
	u := t.tupleFor(r)
	if t.knows(u, r) {
		if err := t.await(r); err != nil {
			return err
		}
		u = t.tupleFor(r) // a load forgets a tuple without rules
	}
	err := t.addTo(u, r)
	if errors.Is(err, errBucket) {
		// The trees take a rule of which the slot table has no place for the key.
		if err = t.await(r); err == nil {
			u = t.treeTuple(&u.mask)
			err = t.addTo(u, r)
		}
	}
	if err != nil {
		return err
	}
	switch known := t.knows(u, r); {
	case !known:
		t.unloaded = append(t.unloaded, r)
	case !u.inTree():
		t.found = true
	}
	return nil
}

// knows reports whether the programs that run look for the key of r among the rules of u.
func (t *tables) knows(u *tuple, r *Rule) bool {
	if u.inTree() {
		return t.need&needTree != 0
	}
	if u.hashed && !slices.Contains(t.rehash, u) {
		return u.place >= 0
	}
	var buf keyBuffer
	return u.place >= 0 && u.key == string(bytesOf(u.keyOf(buf[:0], r)))
}

func (t *tables) addTo(u *tuple, r *Rule) error {
	t.keepOrder(u, r)
	var buf keyBuffer
	packed := u.keyOf(buf[:0], r)
	key := string(bytesOf(packed))
	c := u.chains[key]
	at := 0
	if c != nil {
		at = t.placeIn(c, r.rank())
	}
	unit, err := t.newEntry(u, r, packed, entryComing)
	if err != nil {
		return err
	}
	t.coming = append(t.coming, unit)
	t.lowerRanks(u, r.rank())
	if c == nil {
		c = &chain{}
		if !u.inTree() {
			c.hash = t.hashOf(u, packed)
		}
		if err := t.insert(u, key, c, unit); err != nil {
			t.dropEntry(unit)
			return err
		}
		u.chains[key] = c
	} else if at == 0 {
		t.replace(u, c, c.entries[0], unit)
	}
	c.entries = slices.Insert(c.entries, at, unit)
	u.need |= needOf(r)
	t.counted(u, r.Counter, 1)
	return nil
}

// placeIn is the place in a chain of the first entry whose rank is not below rank.
func (t *tables) placeIn(c *chain, rank uint64) int {
	at, _ := slices.BinarySearchFunc(c.entries, rank, func(e uint32, rank uint64) int {
		return cmp.Compare(t.entries.rank(e), rank)
	})
	return at
}

// newEntry writes an entry for r in this state. No slot and no tree leads to it yet.
func (t *tables) newEntry(u *tuple, r *Rule, packed []uint64, state uint8) (uint32, error) {
	align := 1
	if u.inTree() {
		var buf [treeEntryWords]uint64
		packed, align = treeEntry(buf[:0], r), treeAlign
	}
	size := sizeFor(len(packed))
	unit, ok := t.entries.alloc(size, align)
	if !ok && t.entries.waiting > 0 {
		err := t.forest.flush() // the trees may lead to an entry that was retired
		if err == nil {
			err = t.reclaim()
		}
		if err != nil {
			return 0, err
		}
		unit, ok = t.entries.alloc(size, align)
	}
	if !ok {
		return 0, fmt.Errorf("adding a rule: %w: no room for an entry of %d words", ErrFull, len(packed))
	}
	t.entries.write(unit, r.rank(), packed, newDirWord(state, u.id, uint8(size), r.Drop, r.Counter))
	return unit, nil
}

// dropEntry frees an entry that no slot ever pointed at.
func (t *tables) dropEntry(unit uint32) {
	d := t.entries.dirWord(unit)
	t.entries.setDir(unit, 0)
	t.entries.release(int(unit), int(d.size()))
}

func (t *tables) counted(u *tuple, counter uint32, n int) {
	u.rules += n
	t.count += n
	t.refs[counter] += uint32(n)
}

func (t *tables) reclaim() error {
	if err := t.grace(); err != nil {
		return err
	}
	t.entries.reclaim()
	t.forest.set.Reclaim()
	return nil
}

// insert makes the first entry of a key findable. A tuple that has been one key, and gets another, is hashed from the
// next load on; until then its first key is in both places.
func (t *tables) insert(u *tuple, key string, c *chain, unit uint32) error {
	if u.inTree() {
		t.forest.touch(c)
		return nil
	}
	if !u.hashed && len(u.chains) == 0 && (u.place < 0 || u.key == key) {
		u.key = key
		atomic.StoreUint64(&t.singles[u.id], t.entries.slot(unit, c.hash))
		return nil
	}
	if !u.hashed {
		for _, first := range u.chains {
			if !t.table.insert(first.hash, t.entries.slot(first.entries[0], first.hash)) {
				return errBucket
			}
		}
		u.hashed = true
		t.rehash = append(t.rehash, u)
	}
	if !t.table.insert(c.hash, t.entries.slot(unit, c.hash)) {
		return errBucket
	}
	return nil
}

// errBucket: the slot table has no free slot within slotProbes of the place of a key.
var errBucket = errors.New("no slot near the place of a key")

// replace points the slot of a key, which points at the entry from, at the entry to.
func (t *tables) replace(u *tuple, c *chain, from, to uint32) {
	if u.inTree() {
		t.forest.touch(c)
		return
	}
	s := t.entries.slot(to, c.hash)
	if u.hashed {
		if i, ok := t.table.find(c.hash, from); ok {
			t.table.set(i, s)
		}
	}
	if t.owns(u, from) {
		atomic.StoreUint64(&t.singles[u.id], s)
	}
}

// owns says whether the single slot of a tuple points at unit.
func (t *tables) owns(u *tuple, unit uint32) bool {
	s := t.singles[u.id]
	return !free(s) && unitOf(s) == unit
}

// clear takes the slot of a key away.
func (t *tables) clear(u *tuple, c *chain) {
	if u.inTree() {
		t.forest.touch(c)
		return
	}
	if u.hashed {
		if i, ok := t.table.find(c.hash, c.entries[0]); ok {
			t.table.remove(i)
		}
	}
	if t.owns(u, c.entries[0]) {
		atomic.StoreUint64(&t.singles[u.id], 0)
	}
}

// abandon takes changes of come back, and with them tuples that no program knows.
func (t *tables) abandon(moves []move) {
	for _, m := range slices.Backward(moves) {
		if m.from == nil {
			t.removeRule(m.to)
		} else {
			t.moveRule(move{m.to, m.from})
		}
	}
	t.rehash = slices.DeleteFunc(t.rehash, t.unhash)
	if err := t.forest.flush(); err != nil {
		t.log.Error("taking rules out of the trees", "error", err)
	}
	t.everyTuple(func(u *tuple) {
		if u.rules == 0 && u.place < 0 {
			t.dropTuple(u)
		}
	})
	if t.next != nil {
		t.next = nil
		t.setRanks()
	}
}

// unhash makes a tuple of at most one key single again. Programs know it as single, and the key is in its single slot too.
func (t *tables) unhash(u *tuple) bool {
	if len(u.chains) > 1 {
		return false
	}
	for _, c := range u.chains {
		if !t.owns(u, c.entries[0]) {
			return false
		}
		if i, ok := t.table.find(c.hash, c.entries[0]); ok {
			t.table.remove(i)
		}
	}
	u.hashed = false
	return true
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
