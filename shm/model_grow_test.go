package shm

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// growNow is a writer that makes room and works on. Handles of block counters
// stay, those of latency counters move as the writer says; the old region is
// never written again.
func (k *machine) growNow(t *rapid.T) {
	if k.o.Counters >= 512 {
		t.Skip("large enough")
	}
	counters := k.o.Counters + 64*rapid.IntRange(0, 1).Draw(t, "blocks")
	latency := k.o.LatencyCounters + rapid.IntRange(0, 2).Draw(t, "records")
	have, want, err := k.w.larger(counters, latency)
	if err != nil {
		t.Fatal(err)
	}
	if have == want {
		t.Skip("nothing to do")
	}
	_, length := want.sections()
	m := &mapping{b: make([]byte, length)}
	v, err := format(m.b, want, time.Now().UnixNano())
	if err != nil {
		t.Fatal(err)
	}
	refused := rapid.IntRange(0, 4).Draw(t, "refused") == 0
	k.w.mu.Lock()
	g, err := k.w.moveTo(m, v, 77, func() error {
		if refused {
			return errors.ErrUnsupported
		}
		return nil
	})
	k.w.mu.Unlock()
	if refused {
		if !errors.Is(err, errors.ErrUnsupported) || k.r.Status().State == Superseded {
			t.Fatal(err, k.r.Status().State)
		}
		return
	}
	if err != nil || k.r.Status().State != Superseded {
		t.Fatal(err, k.r.Status().State)
	}
	k.sameTables(t)
	k.o.Counters, k.o.LatencyCounters = counters, latency
	k.old, k.oldBytes = k.at(), bytes.Clone(k.at().b)
	k.moved(m)
	if k.r, err = newReader("heap", m); err != nil {
		t.Fatal(err)
	}
	for _, c := range k.m.live {
		c.entry.Handle = g.Handle(c.entry.Handle)
	}
	for i := range k.m.gone {
		k.m.gone[i] = g.Handle(k.m.gone[i])
	}
	for i := range k.m.history {
		k.m.history[i].Handle = g.Handle(k.m.history[i].Handle)
	}
	if k.cur, err = k.r.History(); err != nil {
		t.Fatal(err)
	}
	k.curAt = uint64(len(k.m.history))
	k.held = map[Handle]*Counter{}
}

// sameTables compares what the writer knows after it grew with what another one
// would find out.
func (k *machine) sameTables(t *rapid.T) {
	b := bytes.Clone(k.w.v.b)
	v, err := attach(b)
	if err != nil {
		t.Fatal(err)
	}
	found := &Writer{v: v, log: k.w.log}
	found.adopt(Now())
	have, want := k.w.tables, found.tables
	for class := range have.free {
		h, w := &have.free[class], &want.free[class]
		if h.next != w.next || h.end != w.end || len(h.cooling) != len(w.cooling) {
			t.Fatalf("class %d: free %+v, want %+v", class, h, w)
		}
		for _, c := range h.cooling {
			if !slices.ContainsFunc(w.cooling, func(o cooling) bool { return o.index == c.index }) {
				t.Fatalf("class %d: slot %d cools down, want %+v", class, c.index, w.cooling)
			}
		}
	}
	if !maps.Equal(have.names, want.names) || !slices.Equal(have.live, want.live) || !slices.Equal(have.liveRecords, want.liveRecords) || have.cycle != want.cycle {
		t.Fatalf("tables %+v, want %+v", have, want)
	}
	if !bytes.Equal(b, k.w.v.b) {
		t.Fatal("another writer finds something to mend")
	}
}
