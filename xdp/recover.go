package xdp

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// recover takes up tables that a process left behind, perhaps in the middle of a change, while programs count on them. Live
// entries are the rules. Entries that the change was adding are live if it was committed, else dead. recover removes the
// dead ones, and makes every slot lead to a live one. Any program of that process reads the tables right then. The caller
// loads new programs, for which constants decides anew, and calls finishLoad.
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
	for _, e := range dead {
		t.entries.retire(e)
	}
	var chains []*chain
	for _, u := range t.treed {
		for _, c := range u.chains {
			chains = append(chains, c)
		}
	}
	return t.forest.rebuild(chains)
}

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

// tupleAt returns the tuple of the entry at a unit, or nil.
func (t *tables) tupleAt(unit uint32, d dirWord) *tuple {
	switch {
	case d.state() == entryFree || int(unit) >= t.entries.units():
		return nil
	case d.tuple() == treeTuple:
		var r Rule
		t.entries.readTree(unit, &r)
		return t.treeTuple(r.Mask.words())
	case d.tuple() >= maxTuples:
		return nil
	}
	return t.tuples[d.tuple()]
}

func (t *tables) entrySize(u *tuple, unit uint32) int {
	if u.inTree() {
		return t.entries.treeUnits(unit)
	}
	return sizeFor(len(u.word))
}

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

// chainOf is the chain of the key of an entry that is hashed, live or dead, or nil.
func (t *tables) chainOf(unit uint32) (*tuple, *chain) {
	if int(unit) >= t.entries.units() {
		return nil, nil
	}
	u := t.tupleAt(unit, t.entries.dirWord(unit))
	if u == nil || u.inTree() {
		return nil, nil
	}
	return u, u.chains[string(bytesOf(t.entries.packed(unit, len(u.word))))]
}

// recoverSlots makes every slot of the table point at the best live entry of
// its key, and takes away the slots of keys without one and second slots of a key.
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

// recoverTuple makes every key of a tuple findable, by the programs that run
// and by the next ones.
func (t *tables) recoverTuple(u *tuple) {
	for key, c := range u.chains {
		// Only the key that the programs were built with is ever in the single slot.
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
		// It held before, so it fits; a rule whose adding was cut short may not.
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

// isLoaded reports whether programs that know a tuple as l find its rules. A tuple without rules
// becomes the tuple that they expect.
func (u *tuple) isLoaded(l loadedTuple) bool {
	var buf words
	key := string(bytesOf(u.pack(buf[:0], &l.key)))
	if u.rules == 0 {
		u.hashed, u.key = !l.single, key
	}
	return u.hashed == !l.single && (u.hashed || u.key == key)
}

// adopt takes the running programs as programs of these constants, if they find every rule.
func (t *tables) adopt(need uint32, loaded []loadedTuple) (constants, bool) {
	var places []*tuple
	for _, l := range loaded {
		u := t.tuples[l.id%maxTuples]
		if u == nil || slices.Contains(places, u) || !u.isLoaded(l) {
			return constants{}, false
		}
		places = append(places, u)
	}
	served := true
	t.everyTuple(func(u *tuple) {
		if u.rules > 0 && (u.need&^need != 0 || !u.inTree() && !slices.Contains(places, u) || u.inTree() && need&needTree == 0) {
			served = false
		}
	})
	if !served {
		return constants{}, false
	}
	c := constants{need: need}
	for _, u := range places {
		u.best = t.bestRank(u)
		c.tuples = append(c.tuples, u.constants(t.secret, !u.hashed))
	}
	t.next, t.nextNeed = places, need
	t.finishLoad()
	return c, true
}
