package xdp

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// recover adopts the tables of an earlier process, which may have died in the middle of a change. Programs classify packets by
// them in the meantime.
//
// The live entries are the rules. recover completes a committed change and rolls back any other. It removes the dead entries,
// points every slot to the best live entry of its key, and builds the trees anew. Afterwards the programs of the earlier process
// find the right rules as far as their constants allow. adopt tells whether these programs can stay.
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
	for _, e := range dead { // no slot points to them any more
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

// recoverEntries reads the directory. It marks the units of entries as used, builds the chains of the live entries, and returns the
// dead ones. It frees a unit whose word describes no valid entry.
func (t *tables) recoverEntries() (dead []uint32) {
	for unit := uint32(0); int(unit) < t.entries.units(); {
		d := t.entries.dirWord(unit)
		size := max(int(d.size()), 1)
		u := t.tupleAt(unit, d)
		if u == nil || size != t.entrySize(u, unit) {
			if d != 0 { // do not touch the pages of unused memory
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

// tupleAt returns the tuple of an entry, or nil if d, the directory word, describes no entry.
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

// entrySize returns the size of an entry of u in units.
func (t *tables) entrySize(u *tuple, unit uint32) int {
	if u.inTree() {
		return t.entries.treeUnits(unit)
	}
	return sizeFor(len(u.maskWords))
}

// recoverEntry adds a live entry to the chain of its key.
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

// chainOf returns tuple and chain for the key of an entry, live or dead. Both are nil if the entry is not of a hashed tuple. The chain
// is nil if the key has no live entry.
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

// recoverSlots points every slot of the hash table to the best live entry of its key. It removes slots of keys without a live entry.
// It also removes second slots of a key, left behind if the process died within insertFrom.
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

// recoverSingles does for the single slots what recoverSlots does for the hash table.
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

// recoverTuple makes every key of a tuple findable, for the attached programs and for new ones.
func (t *tables) recoverTuple(u *tuple) {
	for key, c := range u.chains {
		// The attached programs compare the single slot with one key, a constant. Only that key may be there.
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
		// Inserting a rule that was in force always works, because it had a slot. It can fail for a rule being added when the
		// process died. Then drop the rule.
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

// isLoaded reports whether programs find the rules of a tuple if they know it as l. An empty tuple is changed to match l.
func (u *tuple) isLoaded(l loadedTuple) bool {
	var buf words
	key := string(bytesOf(u.pack(buf[:0], &l.key)))
	if u.rules == 0 {
		u.hashed, u.key = !l.single, key
	}
	return u.hashed == !l.single && (u.hashed || u.key == key)
}

// adopt checks whether the attached programs find every rule. need and loaded are their constants, from the meta map. If so, recover
// ends without a load, and adopt returns the constants.
func (t *tables) adopt(need uint64, loaded []loadedTuple) (constants, bool) {
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
