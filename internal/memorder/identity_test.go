package memorder

// States of an entry. The identity word is the state times ten plus the
// generation.
const (
	building = 10
	live     = 20
	retired  = 30
)

// epoch is the step of a sequence word's epoch, above its count.
const epoch = 8

// slot is a slot of the catalogue with its value. Counter 1 is live at first
// and its values are 11 and 12; then it is removed and counter 2, whose value
// is 21, gets the slot. The words of an entry that say whose it is are name.
type slot struct {
	*block
	identity, born, name word
}

// The epoch is a field of a copy of a block; a reader of a record takes it from
// the sequence word, as here.
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

// belongs fails unless value is one of that counter's. The values of the
// second counter begin as absent, 0.
func belongs(t *thread, generation, value int) {
	if value/10 != generation && !(generation == 2 && value == 0) {
		t.Fail("a handle of counter %d returns the value %d", generation, value)
	}
}

// try is one try of the plain form with a handle.
func (s *slot) try(t *thread, generation int) (value, seq int, gone, ok bool) {
	seq = t.Acquire("read-acquire", s.seq)
	if t.Acquire("identity-acquire", s.identity) != live+generation {
		return 0, seq, true, false
	}
	value = t.Load(s.copies[seq&1][0])
	t.LoadFence("read-fence")
	return value, seq, false, t.Load(s.seq) == seq
}

// handlePlain reads by a handle of the first counter.
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

// handleQuick is the quick form: the identity is compared when the epoch of the sequence word that was
// just loaded differs from the last read's. once is the fault of a specification that compared the
// epoch once, before it tried again.
func handleQuick(once bool) *program {
	p := &program{}
	s := reuse(p)
	p.reader(func(t *thread) {
		value, last, gone, ok := s.try(t, 1)
		if !ok || gone {
			return
		}
		value = t.Load(s.copies[last&1][0])
		t.LoadFence("quick-fence")
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

// lookup finds the name of the entry, and with it a handle. It returns 0 when the entry is not live.
// key holds the caller's values.
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

// handleLookup looks a name up and reads the counter.
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

// handleSnapshot takes a snapshot, and attributes a row of it to a handle that
// was looked up before it or after it.
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

// entrySlots changes the part of an entry that changes while it lives.
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

// exchangeList is a reader that lists two entries while a counter of the first goes on in the second. A list under one
// catalogue_changes, of no swap, has it once.
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

// catalogueChanges is a reader with a table of names, which it renews when catalogue_changes has moved:
// the counters that were added before are in the table.
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
