package memorder

// grown is a file that grows by a segment. Then a counter is added there, published in cycle 1, and recorded in the
// history. A reader may touch bytes up to the file's size. Beyond it the kernel would raise SIGBUS.
type grown struct {
	*block
	size, segments, kind, high, identity, name, cycleDone, tail, index word
}

func grow(p *program) *grown {
	g := &grown{
		block: p.block(0, "packets", "bytes"),
		size:  p.word("size", 1), segments: p.word("segments", 1), kind: p.word("kind", 0), high: p.word("high", 0),
		identity: p.word("identity", 0), name: p.word("name", 0),
		cycleDone: p.word("cycle_done", 0), tail: p.word("history_tail", 0), index: p.word("history.index", 0),
	}
	p.writer(func(t *thread) {
		t.Store(g.size, 2) // fallocate
		t.Store(g.kind, 1)
		t.Release("segments-release", g.segments, 2)
		// Adding.
		t.Store(g.high, 1)
		t.Store(g.identity, building+1)
		t.StoreFence("add-fence")
		t.Store(g.name, 1)
		g.publish(t, 2, 0, 0)
		t.Release("live-release", g.identity, live+1)
		g.publish(t, 3, 7, 7)
		t.Store(g.index, 2) // the counter is in segment 2
		t.Release("history-release", g.tail, 1)
		t.Release("cycle-release", g.cycleDone, 1)
	})
	return g
}

// read checks that the new segment is inside the file, and reads its counter.
func (g *grown) read(t *thread) {
	if t.Load(g.size) < 2 {
		t.Fail("the segment lies behind the end of the file")
	}
	if t.Load(g.kind) != 1 {
		t.Fail("the segment's kind is not there")
	}
	if t.Acquire("entry-acquire", g.identity) != live+1 {
		return
	}
	if t.Load(g.name) != 1 {
		t.Fail("the counter's name is not there")
	}
	for {
		t.Again("read")
		fields, _, ok := g.plain(t)
		if !ok {
			continue
		}
		if fields[0] != fields[1] {
			t.Fail("torn: packets %d, bytes %d", fields[0], fields[1])
		}
		return
	}
}

// growthList is a reader that lists the counters, for which it maps all existing segments.
func growthList() *program {
	p := &program{}
	g := grow(p)
	p.reader(func(t *thread) {
		if t.Acquire("segments-acquire", g.segments) == 2 {
			g.read(t)
		}
	})
	return p
}

// growthHistory is a reader that finds an index of the new segment in the history.
func growthHistory() *program {
	p := &program{}
	g := grow(p)
	p.reader(func(t *thread) {
		if t.Acquire("tail-acquire", g.tail) == 0 {
			return
		}
		if segment := t.Load(g.index); segment > t.Acquire("segments-acquire", g.segments) {
			t.Fail("the history names a counter of segment %d, which is not there", segment)
		}
		g.read(t)
	})
	return p
}

// growthSnapshot demands that a snapshot of cycle k has all values of cycle k. With early the reader loads the number of
// segments before k, which is wrong.
func growthSnapshot(early bool) *program {
	p := &program{}
	g := grow(p)
	p.reader(func(t *thread) {
		segments := 0
		if early {
			segments = t.Acquire("segments-acquire", g.segments)
		}
		k := t.Acquire("cycle-acquire", g.cycleDone)
		if !early {
			segments = t.Acquire("segments-acquire", g.segments)
		}
		if k == 1 && (segments < 2 || t.Load(g.high) < 1) {
			t.Fail("a snapshot of cycle 1 lacks a counter that was published in it")
		}
	})
	return p
}

func growthSnapshotOrdered() *program { return growthSnapshot(false) }
func growthSnapshotEarly() *program   { return growthSnapshot(true) }
