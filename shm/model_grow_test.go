package shm

import (
	"bytes"
	"errors"
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
