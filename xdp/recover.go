package xdp

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// recover takes up tables that an earlier process has left, perhaps in the middle of a change, while programs count by them.
//
// Live entries are the rules. Entries that the change was adding are live if it was committed, else dead. recover removes the
// dead ones, and leads every slot to the best live entry of its key. Behind it, all programs of the earlier process find the
// rules, and the caller decides with adopt whether they stay. The trees are built anew.
func (t *tables) recover(masks map[uint8]*words) error {
	for i := range t.ranks {
		atomic.StoreUint64(&t.ranks[i], 0)
	}
	for id, m := range masks {
		t.tuples[id] = newTuple(id, m)
	}

	dead := t.recoverEntries()
	t.store.setUnderWay(rulesComing, false)
	t.recoverSlots()
	t.recoverSingles()
	for _, u := range t.tuples {
		if u != nil {
			t.recoverTuple(u)
		}
	}
	for _, e := range dead { // no slot leads to them any more
		t.entries.retire(e)
	}

	var chains []*chain
	for _, u := range t.treeTuples {
		for _, c := range u.chains {
			chains = append(chains, c)
		}
	}
	return t.forest.rebuild(chains)
}

// recoverEntries reads the directory. It takes the units of entries, makes the chains of the live ones, and returns the dead
// ones. A word that describes no entry of the tables frees its unit.
func (t *tables) recoverEntries() (dead []uint32) {
	for unit := uint32(0); int(unit) < t.entries.units(); {
		d := t.entries.dirWord(unit)
		size := max(int(d.size()), 1)
		u := t.tupleAt(unit, d)
		if u == nil || size != t.entrySize(u, unit) {
			if d != 0 { // most units are free, and a store would make their pages
				t.entries.setDir(unit, 0)
			}
			unit++
			continue
		}
		t.entries.take(int(unit), size)

		if d.state() == entryComing {
			d = d.with(entryLive)
			if t.store.underWay(rulesComing) {
				d = d.with(entryDead)
				t.dropped = append(t.dropped, t.rule(u, unit))
			}
			t.entries.setDir(unit, d)
		}
		if d.state() == entryDead {
			dead = append(dead, unit)
		} else {
			t.recoverEntry(u, unit, d)
		}
		unit += uint32(size)
	}

	t.everyTuple(func(u *tuple) {
		for _, c := range u.chains {
			slices.SortFunc(c.entries, func(a, b uint32) int {
				return cmp.Compare(t.entries.rank(a), t.entries.rank(b))
			})
		}
	})
	return dead
}

// tupleAt returns the tuple of the entry at a unit, whose directory word is d, or nil.
func (t *tables) tupleAt(unit uint32, d dirWord) *tuple {
	switch {
	case d.state() == entryFree || int(unit) >= t.entries.units():
		return nil
	case d.tuple() == treeID:
		var r Rule
		t.entries.readTree(unit, &r)
		return t.treeTuple(r.Mask.words())
	case d.tuple() >= maxTuples:
		return nil
	}
	return t.tuples[d.tuple()]
}

// entrySize returns the number of units that an entry of u takes.
func (t *tables) entrySize(u *tuple, unit uint32) int {
	if u.inTree() {
		return t.entries.treeUnits(unit)
	}
	return sizeFor(len(u.maskWords))
}

// recoverEntry puts a live entry into the chain of its key.
func (t *tables) recoverEntry(u *tuple, unit uint32, d dirWord) {
	r := t.rule(u, unit)
	var buf keyBuffer
	packed := u.keyOf(buf[:0], &r)
	key := string(bytesOf(packed))
	c := u.chains[key]
	if c == nil {
		c = &chain{}
		if !u.inTree() {
			c.hash = t.hashOf(u, packed)
		}
		u.chains[key] = c
	}
	c.entries = append(c.entries, unit)
	u.need |= needOf(&r)
	t.counted(u, d.counter(), 1)
}

// chainOf returns the tuple and the chain of an entry's key. The entry may be live or dead. The results are nil for an entry of
// the trees, and the chain is nil if the key has no live entry.
func (t *tables) chainOf(unit uint32) (*tuple, *chain) {
	if int(unit) >= t.entries.units() {
		return nil, nil
	}
	u := t.tupleAt(unit, t.entries.dirWord(unit))
	if u == nil || u.inTree() {
		return nil, nil
	}
	return u, u.chains[string(bytesOf(t.entries.packed(unit, len(u.maskWords))))]
}

// recoverSlots leads every slot of the hash table to the best live entry of its key. It takes away slots of keys without a live
// entry, and second slots of a key, which insertFrom leaves if the process dies in it.
func (t *tables) recoverSlots() {
	seen := map[*chain]bool{}
	for i := range uint64(len(t.table.slots)) {
		s := t.table.at(i)
		if free(s) {
			continue
		}
		u, c := t.chainOf(unitOf(s))
		if c == nil || seen[c] || (i-c.hash)&t.table.mask >= slotProbes {
			t.table.set(i, tombstone)
			continue
		}
		seen[c] = true
		u.hashed = true
		if want := t.entries.slot(c.entries[0], c.hash); want != s {
			t.table.set(i, want)
		}
	}
}

// recoverSingles does the same for the single slots.
func (t *tables) recoverSingles() {
	for id := range t.singles {
		s := atomic.LoadUint64(&t.singles[id])
		if s == 0 {
			continue
		}
		u, c := t.chainOf(unitOf(s))
		if c == nil || int(u.id) != id {
			atomic.StoreUint64(&t.singles[id], 0)
		} else if want := t.entries.slot(c.entries[0], c.hash); want != s {
			atomic.StoreUint64(&t.singles[id], want)
		}
	}
}

// recoverTuple lets attached programs, and the next ones, find every key of a tuple.
func (t *tables) recoverTuple(u *tuple) {
	for key, c := range u.chains {
		// A single slot never holds another key than the one that is a constant of the attached programs.
		if !t.owns(u, c.entries[0]) || len(u.chains) > 1 {
			u.hashed = true
		} else {
			u.key = key
		}
	}
	for key, c := range u.chains {
		if !u.hashed {
			continue
		}
		if _, ok := t.table.find(c.hash, c.entries[0]); ok {
			continue
		}
		// A rule that was in force had a slot, so there is a place. A rule whose adding was cut short may have none.
		if !t.table.insert(c.hash, t.entries.slot(c.entries[0], c.hash)) {
			for _, e := range c.entries {
				d := t.entries.dirWord(e)
				t.entries.setDir(e, d.with(entryDead))
				t.entries.retire(e)
				t.counted(u, d.counter(), -1)
			}
			delete(u.chains, key)
		}
	}
	if u.hashed {
		t.rehash = append(t.rehash, u)
	}
}

// isLoaded reports whether programs that know the tuple as l find its rules. A tuple without rules becomes what they know.
func (u *tuple) isLoaded(l loadedTuple) bool {
	var buf words
	key := string(bytesOf(u.pack(buf[:0], &l.key)))
	if u.rules == 0 {
		u.hashed, u.key = !l.single, key
	}
	return u.hashed == !l.single && (u.hashed || u.key == key)
}

// adopt ends a recover without a load, if the attached programs find every rule. need and loaded are their constants, by the
// meta map. It returns these constants.
func (t *tables) adopt(need uint32, loaded []loadedTuple) (constants, bool) {
	var places []*tuple
	for _, l := range loaded {
		u := t.tuples[l.id%maxTuples]
		if u == nil || slices.Contains(places, u) || !u.isLoaded(l) {
			return constants{}, false
		}
		places = append(places, u)
	}

	found := true
	t.everyTuple(func(u *tuple) {
		if u.rules == 0 {
			return
		}
		looked := slices.Contains(places, u)
		if u.inTree() {
			looked = need&needTree != 0
		}
		found = found && looked && u.need&^need == 0
	})
	if !found {
		return constants{}, false
	}

	c := constants{need: need}
	for _, u := range places {
		u.best = t.bestRank(u)
		c.tuples = append(c.tuples, u.constants(t.secret, !u.hashed))
	}
	t.next = places
	t.nextNeed = need
	t.finishLoad()
	return c, true
}
