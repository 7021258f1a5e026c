package memorder

// putLive is L2 of docs/mirror-format.md: it changes the live words of an entry. During the change, state is odd.
func putLive(t *thread, state word, count int, fields ...word) {
	t.Store(state, count-1)
	t.StoreFence("view-begin-fence")
	for _, f := range fields {
		t.Store(f, count)
	}
	t.Release("view-release", state, count)
}

// liveWords is an entry with changing slot and base, and a reader resolving a handle.
func liveWords() *program {
	p := &program{}
	state, of, base := p.word("live_state", 2), p.word("live_map", 2), p.word("live_base", 2)
	p.writer(func(t *thread) {
		putLive(t, state, 4, of, base)
		putLive(t, state, 6, of, base)
	})
	p.reader(func(t *thread) {
		s := t.Acquire("view-acquire", state)
		m, b := t.Load(of), t.Load(base)
		t.LoadFence("view-words-fence")
		if s%2 == 0 && t.Load(state) == s && (m != s || b != s) {
			t.Fail("under count %d the slot is of count %d and the base of count %d", s, m, b)
		}
	})
	return p
}

// liveReuse is a slot passing from one counter to another. A rule assigns the slot, and the kernel counts by the rule on
// a third CPU. The reader has resolved the handle of the first counter before.
func liveReuse() *program {
	p := &program{}
	state, rule, slot := p.word("live_state", 2), p.word("rule", 0), p.word("slot", 0)
	p.writer(func(t *thread) {
		putLive(t, state, 4)
		t.Store(rule, 1)
	})
	p.writer(func(t *thread) {
		// A branch depends on a load. No CPU makes a store behind the branch visible before the load.
		matches, known := t.LoadKnown(rule, 0)
		if t.Branch(known); matches == 1 {
			t.Store(slot, 1)
		}
	})
	p.reader(func(t *thread) {
		counted := t.Load(slot)
		t.LoadFence("view-fence")
		if t.Load(state) == 2 && counted != 0 {
			t.Fail("a packet of the next counter is in the count")
		}
	})
	return p
}

// liveMonotone is a poller publishing the kernel's count, and a reader loading first the published value and then the
// count. The reader must not see the count go back.
func liveMonotone() *program {
	p := &program{}
	slot, value := p.word("slot", 0), p.word("value", 0)
	p.writer(func(t *thread) {
		t.Store(slot, 1)
		t.Store(slot, 2)
	})
	p.writer(func(t *thread) {
		for range 2 {
			counted, known := t.LoadKnown(slot, 0)
			t.StoreKnown(value, counted, known) // the published value depends on the count
		}
	})
	p.reader(func(t *thread) {
		published := t.Load(value)
		t.LoadFence("read-fence")
		if counted := t.Load(slot); counted < published {
			t.Fail("the mirror had %d, and the live view returns %d", published, counted)
		}
	})
	return p
}
