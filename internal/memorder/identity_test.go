package memorder

// The states of an entry. The identity word is ten times the state, plus the generation.
const (
	building = 10
	live     = 20
	retired  = 30
)

// epoch is one step of the epoch in a sequence word. The epoch is above the count.
const epoch = 8

// slot is a slot of the catalogue with its value. At first counter 1 is live, with the values 11 and 12. Then it is
// removed, and counter 2 gets the slot, with the value 21. The word name stands for all words that identify the
// counter of an entry.
type slot struct {
	*block
	identity, born, name word
}

// In a block the epoch is a field of each copy. Here it is in the sequence word, as in a record.
func reuse(p *program) *slot {
	s := &slot{
		block:    p.block(11, "packets"),
		identity: p.word("identity", live+1), born: p.word("born", 0), name: p.word("name", 1),
	}
	p.writer(func(t *thread) {
		s.publish(t, 2, 12)
		// Removing.
		t.Release("retire-release", s.identity, retired+1)
		s.publish(t, epoch+3, 0)
		// Adding.
		t.Store(s.identity, building+2)
		t.StoreFence("add-fence")
		t.Store(s.name, 2)
		t.Store(s.born, 1)
		s.publish(t, epoch+4, 0)
		t.Release("live-release", s.identity, live+2)
		// The first cycle of the new counter.
		s.publish(t, epoch+5, 21)
	})
	return s
}

// belongs fails unless value is a value of the counter. Before its first cycle, the second counter has the value 0,
// which means none.
func belongs(t *thread, generation, value int) {
	if value/10 != generation && !(generation == 2 && value == 0) {
		t.Fail("a handle of counter %d returns the value %d", generation, value)
	}
}

// try tries the plain form once, with a handle.
func (s *slot) try(t *thread, generation int) (value, seq int, gone, ok bool) {
	seq = t.Acquire("read-acquire", s.seq)
	if t.Acquire("identity-acquire", s.identity) != live+generation {
		return 0, seq, true, false
	}
	value = t.Load(s.copies[seq&1][0])
	t.LoadFence("read-fence")
	return value, seq, false, t.Load(s.seq) == seq
}

// handlePlain reads in the plain form, with a handle of the first counter.
func handlePlain() *program {
	p := &program{}
	s := reuse(p)
	p.reader(func(t *thread) {
		for {
			t.Again("read")
			value, _, gone, ok := s.try(t, 1)
			if ok {
				belongs(t, 1, value)
			}
			if ok || gone {
				return
			}
		}
	})
	return p
}

// handleQuick reads in the quick form: it compares the identity only if the epoch in the sequence word differs from
// that of the last read. With once it compares the epoch before the first try alone, which was a fault of an earlier
// specification.
func handleQuick(once bool) *program {
	p := &program{}
	s := reuse(p)
	p.reader(func(t *thread) {
		value, last, gone, ok := s.try(t, 1)
		if !ok || gone {
			return
		}
		now := t.Load(s.seq)
		if now == last {
			belongs(t, 1, value)
			return
		}
		freed := now/epoch != last/epoch
		for {
			t.Again("read", last)
			seq := t.Acquire("read-acquire", s.seq)
			if !once {
				freed = seq/epoch != last/epoch
			}
			if freed && t.Acquire("identity-acquire", s.identity) != live+1 {
				return
			}
			value = t.Load(s.copies[seq&1][0])
			t.LoadFence("read-fence")
			if t.Load(s.seq) == seq {
				if !once || value != 0 { // 0 is a fault too: the worse one is to be found
					belongs(t, 1, value)
				}
				return
			}
		}
	})
	return p
}

func handleQuickEveryTry() *program { return handleQuick(false) }
func handleQuickOnce() *program     { return handleQuick(true) }

// lookup returns the name of the entry, and a handle. If the entry is not live, it returns 0. key contains the caller's
// values, because the rest of the run depends on them (Again).
func (s *slot) lookup(t *thread, key ...int) (generation int) {
	for {
		t.Again("look up", key...)
		id := t.Acquire("entry-acquire", s.identity)
		if id/10*10 != live {
			return 0
		}
		name := t.Load(s.name)
		t.LoadFence("entry-fence")
		if t.Load(s.identity) == id {
			if name != id-live {
				t.Fail("the name of counter %d is that of counter %d", id-live, name)
			}
			return name
		}
	}
}

// handleLookup looks up a name and reads its counter.
func handleLookup() *program {
	p := &program{}
	s := reuse(p)
	p.reader(func(t *thread) {
		generation := s.lookup(t)
		if generation == 0 {
			return
		}
		for {
			t.Again("read", generation)
			value, _, gone, ok := s.try(t, generation)
			if ok {
				belongs(t, generation, value)
			}
			if ok || gone {
				return
			}
		}
	})
	return p
}

// handleSnapshot takes a snapshot, and looks up a handle before or after it. It must not attribute a row to the wrong
// counter.
func handleSnapshot(before bool) *program {
	p := &program{}
	s := reuse(p)
	p.reader(func(t *thread) {
		generation := 0
		if before {
			generation = s.lookup(t)
		}
		var fields []int
		var seq int
		for ok := false; !ok; {
			t.Again("snapshot", generation)
			fields, seq, ok = s.plain(t)
		}
		if !before {
			generation = s.lookup(t, fields[0], seq)
		}
		if generation == 0 || t.Acquire("identity-acquire", s.identity) != live+generation {
			return
		}
		if born := t.Load(s.born); born <= seq/epoch {
			belongs(t, generation, fields[0])
		}
	})
	return p
}

func handleSnapshotBefore() *program { return handleSnapshot(true) }
func handleSnapshotAfter() *program  { return handleSnapshot(false) }

// entrySlots changes the mutable part of a live entry.
func entrySlots() *program {
	p := &program{}
	b := p.block(1, "source", "base")
	p.writer(func(t *thread) {
		for n := 2; n <= 4; n++ {
			b.publish(t, n, n, n)
		}
	})
	p.reader(func(t *thread) {
		for {
			t.Again("read")
			seq := t.Acquire("slot-acquire", b.seq)
			fields := b.load(t, seq)
			t.LoadFence("entry-fence")
			if t.Load(b.seq) == seq {
				whole(t, fields, seq)
				return
			}
		}
	})
	return p
}

// exchangeList is a reader listing two entries while a counter moves from the first to the second. A list taken under
// one value of catalogue_changes must have the counter once.
func exchangeList() *program {
	p := &program{}
	old, fresh, changes := p.word("old", live+1), p.word("fresh", 0), p.word("catalogue_changes", 0)
	p.writer(func(t *thread) {
		t.Release("changes-release", changes, 1)
		t.Release("retire-release", old, retired+1)
		t.Release("live-release", fresh, live+1)
		t.Release("changes-release", changes, 2)
	})
	p.reader(func(t *thread) {
		before, found := t.Acquire("changes-acquire", changes), 0
		for _, entry := range []word{old, fresh} {
			if t.Acquire("entry-acquire", entry) == live+1 {
				found++
			}
		}
		if t.Load(changes) == before && before&1 == 0 && found != 1 {
			t.Fail("a list has the counter %d times", found)
		}
	})
	return p
}

// catalogueChanges is a reader with a table of names, which it renews when catalogue_changes has changed. All counters
// added before the change must be in the table.
func catalogueChanges() *program {
	p := &program{}
	high, identity, changes := p.word("high", 0), p.word("identity", 0), p.word("catalogue_changes", 0)
	p.writer(func(t *thread) {
		t.Store(high, 1)
		t.Release("live-release", identity, live+1)
		t.Release("changes-release", changes, 1)
	})
	p.reader(func(t *thread) {
		seen := t.Acquire("changes-acquire", changes)
		if seen == 1 && (t.Load(high) == 0 || t.Acquire("entry-acquire", identity) != live+1) {
			t.Fail("the table is of change 1 and lacks the counter that it added")
		}
	})
	return p
}
