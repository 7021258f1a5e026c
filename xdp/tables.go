package xdp

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
)

// tables is the classifier of bpf/tables.h: tuple space search. The maps hold everything that the
// next process needs after a crash: entries, their directory and the tuples' masks.
type tables struct {
	g       geometry
	entries *entryStore
	table   slotTable
	singles []uint64 // slots of the tuples of one rule, by id
	ranks   []uint64 // by place
	store   tupleStore
	secret  *secret
	grace   func() error // returns when no program runs that ran before

	tuples   [maxTuples]*tuple // by id
	places   []*tuple          // by place in the programs that run
	need     uint32            // of the programs that run
	next     []*tuple          // the same of those being loaded
	nextNeed uint32
	rehash   []*tuple // single in the programs that run, hashed in the next
	count    int
	refs     []uint32        // rules by counter
	leaving  map[uint32]bool // entries that a change under way moves or removes
}

// tupleStore keeps the masks by id where they outlive the process.
type tupleStore interface {
	setTuple(id uint8, mask *words)
	clearTuple(id uint8)
}

// rank orders rules: lower wins.
func (r *Rule) rank() uint64 { return uint64(r.Priority)<<32 | uint64(r.Order) }

const noRank = ^uint64(0)

func (t *tables) tupleOf(mask *words) *tuple {
	for _, u := range t.tuples {
		if u != nil && u.mask == *mask {
			return u
		}
	}
	return nil
}

// newTuple takes an id that no program knows.
func (t *tables) newTuple(mask *words) (*tuple, error) {
	for id, u := range t.tuples {
		if u == nil {
			u = newTuple(uint8(id), mask)
			t.tuples[id] = u
			t.store.setTuple(u.id, mask)
			return u, nil
		}
	}
	return nil, fmt.Errorf("adding a rule: %w: all %d are in use", ErrMasks, maxTuples)
}

// dropTuple forgets a tuple without rules that no program knows.
func (t *tables) dropTuple(u *tuple) {
	t.tuples[u.id] = nil
	t.store.clearTuple(u.id)
}

func (t *tables) prepare(rules []Rule) (bool, error) {
	reload := false
	for i := range rules {
		r := &rules[i]
		again, err := t.add(r)
		if err != nil {
			t.abandon(rules[:i])
			return false, err
		}
		reload = reload || again
	}
	return reload, nil
}

// add puts a rule where programs find it and says whether those that run do.
func (t *tables) add(r *Rule) (reload bool, err error) {
	u := t.tupleOf(r.Mask.words())
	if u == nil {
		if u, err = t.newTuple(r.Mask.words()); err != nil {
			return false, err
		}
	}
	need := needOf(r)
	u.need |= need
	if err := t.addTo(u, r); err != nil {
		if u.rules == 0 && u.place < 0 {
			t.dropTuple(u)
		}
		return false, err
	}
	return u.place < 0 || need&^t.need != 0 || slices.Contains(t.rehash, u), nil
}

func (t *tables) addTo(u *tuple, r *Rule) error {
	if t.count >= t.g.rules {
		return fmt.Errorf("adding a rule: %w: the tables hold %d rules", ErrFull, t.g.rules)
	}
	var buf words
	packed := u.pack(buf[:0], r.Key.words())
	key := string(bytesOf(packed))
	c := u.chains[key]
	at := 0
	if c != nil {
		if err := t.vacant(c, r.rank()); err != nil {
			return err
		}
		at = t.placeIn(c, r.rank())
	}
	unit, err := t.newEntry(u, r, packed)
	if err != nil {
		return err
	}
	t.lowerRanks(u, r.rank())
	if c == nil {
		c = &chain{hash: t.hashOf(u, packed)}
		if err := t.insert(u, key, c, unit); err != nil {
			t.dropEntry(unit)
			return err
		}
		u.chains[key] = c
	} else if at == 0 {
		t.replace(u, c.hash, c.entries[0], unit)
	}
	c.entries = slices.Insert(c.entries, at, unit)
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

func (t *tables) newEntry(u *tuple, r *Rule, packed []uint64) (uint32, error) {
	size := sizeFor(len(packed))
	unit, ok := t.entries.alloc(size)
	if !ok && t.entries.waiting > 0 {
		if err := t.reclaim(); err != nil {
			return 0, err
		}
		unit, ok = t.entries.alloc(size)
	}
	if !ok {
		return 0, fmt.Errorf("adding a rule: %w: no room for an entry of %d words", ErrFull, len(packed))
	}
	t.entries.write(unit, r.rank(), packed, newDirWord(entryLive, u.id, uint8(size), r.Drop, r.Counter))
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
	return nil
}

func (t *tables) slot(unit uint32, hash uint64) uint64 {
	d := t.entries.dirWord(unit)
	return slotOf(unit, d.counter(), d.drop(), tagOf(hash))
}

// insert makes the first entry of a key findable. A tuple that has been one
// key, and gets another, is hashed from the next load on; until then its first
// key is in both places.
func (t *tables) insert(u *tuple, key string, c *chain, unit uint32) error {
	if !u.hashed && len(u.chains) == 0 && (u.place < 0 || u.key == key) {
		u.key = key
		atomic.StoreUint64(&t.singles[u.id], t.slot(unit, c.hash))
		return nil
	}
	if !u.hashed {
		for _, first := range u.chains {
			if !t.table.insert(first.hash, t.slot(first.entries[0], first.hash)) {
				return t.noSlot()
			}
		}
		u.hashed = true
		t.rehash = append(t.rehash, u)
	}
	if !t.table.insert(c.hash, t.slot(unit, c.hash)) {
		return t.noSlot()
	}
	return nil
}

func (t *tables) noSlot() error {
	return fmt.Errorf("adding a rule: %w: no free slot within %d of the place of its key; %d of %d rules are in use",
		ErrBucket, slotProbes, t.count, t.g.rules)
}

// replace points the slot of a key, which points at the entry from, at the entry to.
func (t *tables) replace(u *tuple, hash uint64, from, to uint32) {
	s := t.slot(to, hash)
	if u.hashed {
		if i, ok := t.table.find(hash, from); ok {
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
	if u.hashed {
		if i, ok := t.table.find(c.hash, c.entries[0]); ok {
			t.table.remove(i)
		}
	}
	if t.owns(u, c.entries[0]) {
		atomic.StoreUint64(&t.singles[u.id], 0)
	}
}

// abandon: rules that were prepared go again, and with them tuples that no program knows.
func (t *tables) abandon(rules []Rule) {
	for i := len(rules) - 1; i >= 0; i-- {
		t.removeRule(&rules[i])
	}
	t.rehash = slices.DeleteFunc(t.rehash, func(u *tuple) bool {
		// Its first key, if it is left, is in its single slot too, which the programs read.
		return t.unhash(u)
	})
	for _, u := range t.tuples {
		if u != nil && u.rules == 0 && u.place < 0 {
			t.dropTuple(u)
		}
	}
	if t.next != nil {
		t.next = nil
		t.setRanks()
	}
}

// unhash makes a tuple of at most one key single again; programs know it as single.
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
