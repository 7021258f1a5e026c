package xdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// This file adds, removes and swaps single rules. At any time, programs may read an entry or a slot, and the process may die between
// any two stores. So the order of stores matters everywhere here. The order between rules is the subject of exchange.go.

// add adds a rule. Programs find it at once, after the next change of the trees, or after the next load.
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
		u = t.tupleFor(r) // again, because a load drops empty tuples
	}
	err := t.addTo(u, r)
	if errors.Is(err, errNoSlot) {
		// The hash table has no place for this key. Use the trees.
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

// vacant returns an error if u already has a rule with the key and the rank of r. A rule being removed does not count. u may be nil.
func (t *tables) vacant(u *tuple, r *Rule) error {
	if u == nil {
		return nil
	}
	var buf keyBuffer
	c := u.chains[string(bytesOf(u.keyOf(buf[:0], r)))]
	if c == nil {
		return nil
	}
	for _, e := range c.entries[t.placeIn(c, r.rank()):] {
		if t.entries.rank(e) != r.rank() {
			break
		}
		if !t.leaving[e] {
			return existsError()
		}
	}
	return nil
}

func existsError() error {
	return fmt.Errorf("adding a rule: %w: one with this key, mask, priority and order", ErrExists)
}

// knows reports whether the attached programs would find r in u.
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

// addTo adds a rule to a tuple. It writes an entry. If the rule is the best one of its key, it also points programs to the entry.
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

// placeIn returns the index of the first entry in a chain with this rank or a higher one.
func (t *tables) placeIn(c *chain, rank uint64) int {
	at, _ := slices.BinarySearchFunc(c.entries, rank, func(e uint32, rank uint64) int {
		return cmp.Compare(t.entries.rank(e), rank)
	})
	return at
}

// newEntry writes an entry for r. Programs cannot find it yet.
func (t *tables) newEntry(u *tuple, r *Rule, packed []uint64, state uint8) (uint32, error) {
	align := 1
	if u.inTree() {
		var buf [treeEntryWords]uint64
		packed = treeEntry(buf[:0], r)
		align = treeAlign
	}
	size := sizeFor(len(packed))

	unit, ok := t.entries.alloc(size, align)
	if !ok && t.entries.waiting > 0 {
		// Pending changes of the trees may concern retired entries. Apply them before reclaim frees the memory.
		if err := t.forest.flush(); err != nil {
			return 0, err
		}
		if err := t.reclaim(); err != nil {
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

// dropEntry frees an entry at once. Programs must never have found it.
func (t *tables) dropEntry(unit uint32) {
	d := t.entries.dirWord(unit)
	t.entries.setDir(unit, 0)
	t.entries.release(int(unit), int(d.size()))
}

// counted updates the numbers of rules after n rules of u were added.
func (t *tables) counted(u *tuple, counter uint32, n int) {
	u.rules += n
	t.count += n
	t.rulesByCounter[counter] += uint32(n)
}

// errNoSlot means that hashTable.insert has failed.
var errNoSlot = errors.New("no slot near the place of a key")

// insert points programs to the first entry of a new key.
//
// A tuple with a single key has it as a constant of the programs. When a second key arrives, the tuple becomes hashed with the next
// load. Until then its first key is in two places, because the attached programs still look in the single slot.
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
				return errNoSlot
			}
		}
		u.hashed = true
		t.rehash = append(t.rehash, u)
	}
	if !t.table.insert(c.hash, t.entries.slot(unit, c.hash)) {
		return errNoSlot
	}
	return nil
}

// replace points programs to the entry to for a key. So far they found the entry from.
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

// clear removes the slot of a key.
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

// owns reports whether the single slot of a tuple points to an entry.
func (t *tables) owns(u *tuple, unit uint32) bool {
	s := t.singles[u.id]
	return !free(s) && unitOf(s) == unit
}

// entryOf finds a rule: its tuple, the key of its chain, and its index in the chain. A process that died in a change may have left
// several rules with this key and rank. entryOf prefers the one with the counter and the action of r.
func (t *tables) entryOf(r *Rule) (u *tuple, key string, at int, ok bool) {
	for _, v := range t.tuplesOf(r) {
		if v == nil {
			continue
		}
		var buf keyBuffer
		k := string(bytesOf(v.keyOf(buf[:0], r)))
		c := v.chains[k]
		if c == nil {
			continue
		}

		first := t.placeIn(c, r.rank())
		for i := first; i < len(c.entries) && t.entries.rank(c.entries[i]) == r.rank(); i++ {
			if d := t.entries.dirWord(c.entries[i]); d.counter() == r.Counter && d.drop() == r.Drop {
				return v, k, i, true
			}
			if !ok {
				u, key, at, ok = v, k, first, true
			}
		}
	}
	return u, key, at, ok
}

// removeRule removes a rule. It first marks the entry as dead. If the process dies after that, the next one completes the removal.
func (t *tables) removeRule(r *Rule) {
	u, key, at, ok := t.entryOf(r)
	if !ok {
		return
	}
	t.keepOrder(u, r)

	c := u.chains[key]
	unit := c.entries[at]
	d := t.entries.dirWord(unit)
	t.entries.setDir(unit, d.with(entryDead))
	switch {
	case at > 0: // programs see a better entry of this key
	case len(c.entries) > 1:
		t.replace(u, c, c.entries[0], c.entries[1])
	default:
		t.clear(u, c)
		delete(u.chains, key)
	}

	c.entries = slices.Delete(c.entries, at, at+1)
	t.entries.retire(unit)
	t.counted(u, d.counter(), -1)
	if u.rules == 0 {
		u.best = noRank
	}
	if u.inTree() && t.entries.rank(unit) == t.forest.best {
		t.forest.bestGone = true
	}
}

// swapRule changes rank and action of a rule, and returns its tuple. It stores the directory word first, which commits the action for
// the next process. To a packet, the change takes effect with a single store, of a slot or of a rank.
func (t *tables) swapRule(s swap) *tuple {
	u, key, at, ok := t.entryOf(s.from)
	if !ok {
		return nil
	}
	c := u.chains[key]
	unit := c.entries[at]
	delete(t.leaving, unit)
	if u.inTree() {
		err := t.swapInTree(u, c, at, s.to)
		canceled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) // come returns that error
		if err != nil && !canceled {
			t.log.Error("giving a rule another rank", "error", err)
		}
		return u
	}

	t.keepOrder(u, s.to)
	d := t.entries.dirWord(unit)
	t.entries.setDir(unit, newDirWord(d.state(), d.tuple(), d.size(), s.to.Drop, d.counter()))

	rank := s.to.rank()
	t.lowerRanks(u, rank)
	head := c.entries[0]
	c.entries = slices.Delete(c.entries, at, at+1)
	place := t.placeIn(c, rank)
	if unit == head && place > 0 { // move the slot to the new best entry before this one gets its worse rank
		t.replace(u, c, head, c.entries[0])
	}
	atomic.StoreUint64(&t.entries.ranks[unit], rank)
	c.entries = slices.Insert(c.entries, place, unit)
	if place == 0 {
		t.replace(u, c, head, unit)
	}
	return u
}

// swapInTree changes rank and action of a rule in the trees. It writes a new entry, because until flush the trees are ordered by the
// rank in the old one.
func (t *tables) swapInTree(u *tuple, c *chain, at int, to *Rule) error {
	old := c.entries[at]
	unit, err := t.newEntry(u, to, nil, entryLive)
	if err != nil {
		return err
	}
	t.lowerRanks(u, to.rank())

	before := slices.Clone(c.entries)
	c.entries = slices.Delete(c.entries, at, at+1)
	c.entries = slices.Insert(c.entries, t.placeIn(c, to.rank()), unit)
	t.forest.touch(c)
	if err := t.forest.flush(); err != nil {
		c.entries = before
		t.dropEntry(unit)
		return errors.Join(err, t.forest.flush())
	}

	if t.entries.rank(old) == t.forest.best {
		t.forest.bestGone = true
	}
	t.entries.setDir(old, t.entries.dirWord(old).with(entryDead))
	t.entries.retire(old)
	return nil
}
