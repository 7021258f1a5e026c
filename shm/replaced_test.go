package shm

import (
	"context"
	"errors"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

// Once a file is given up, every method that reads values or the catalogue returns ErrStale,
// at once and for ever, even a counter that had cached its place. The last values stay in the file.
func TestReplacedMirrorIsStale(t *testing.T) {
	w, r := heapMirror(t, 200, 2, 8, Options{})
	hs := append(addN(t, w, 130, false), addN(t, w, 2, true)...)
	publishAll(w, hs, func(Handle) Value { return patterned(5) }, func() { w.AppendHistory(hs[0], patterned(5)) })
	var kept []HandleCounter
	for _, h := range hs {
		c := mustCounter(t, r, h)
		for range 2 {
			if v, err := c.Load(); err != nil || v != patterned(5) {
				t.Fatal(v, err)
			}
		}
		kept = append(kept, c)
	}
	var before Snapshot
	if err := r.Snapshot(&before); err != nil {
		t.Fatal(err)
	}
	cur, err := r.History()
	if err != nil {
		t.Fatal(err)
	}
	cur.Rewind()
	if err := w.GiveUp(99); err != nil {
		t.Fatal(err)
	}
	if err := w.GiveUp(99); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := w.Add(Entry{Name: "late"}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	for i := range kept {
		for range 3 {
			if v, err := kept[i].Load(); !errors.Is(err, ErrStale) || v != (Value{}) {
				t.Fatalf("%v: %v, %v", kept[i].Handle(), v, err)
			}
		}
	}
	recs := make([]Record, 4)
	if n, _, err := cur.Next(recs); n != 1 || err != nil || recs[0].Value != patterned(5) {
		t.Errorf("what was written before: %d, %v", n, err)
	}
	if v, err := before.Value(hs[0]); err != nil || v != patterned(5) {
		t.Errorf("a snapshot of before: %v, %v", v, err)
	}
	for what, call := range map[string]func() error{
		"Lookup":          func() error { _, err := r.Lookup("cfalse-0"); return err },
		"Lookup, unknown": func() error { _, err := r.Lookup("x"); return err },
		"Find":            func() error { _, err := r.Find("cfalse-0"); return err },
		"Entries":         func() error { _, err := r.Entries(); return err },
		"Entry":           func() error { _, err := r.Entry(hs[0]); return err },
		"Counter":         func() error { _, err := r.Counter(hs[0]); return err },
		"Snapshot":        func() error { return r.Snapshot(new(Snapshot)) },
		"SnapshotOf":      func() error { return r.SnapshotOf(new(Snapshot), hs) },
		"Next":            func() error { _, _, err := cur.Next(recs); return err },
		"Wait":            func() error { _, err := r.Wait(context.Background(), hs[0], 1<<60); return err },
		"WaitChange":      func() error { _, err := r.WaitChange(context.Background(), hs[0], patterned(5)); return err },
	} {
		if err := call(); !errors.Is(err, ErrStale) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s := r.Status(); !s.Replaced || s.Alive || s.State != Halt || r.v.hdr.replaced != 99 {
		t.Errorf("%+v", s)
	}
	if b := w.v.slot(0).block(); b.copy(*b.seq()).values[0] != patterned(5) || w.v.slot(hs[131].Index).record().slots[w.v.slot(hs[131].Index).record().seq&1] != patterned(5) {
		t.Error("the current copies hold other values")
	}
}

// However counters are added and removed, all blocks in use of a segment keep one parity, so
// that a snapshot can copy the segment in one piece.
func TestBlocksOfASegmentKeepOneParity(t *testing.T) {
	w, r := heapMirror(t, 3*SegmentLen, 0, 0, Options{CoolDown: -1})
	w.coolDown = 0
	rnd := seed.Rand(t)
	hs := addN(t, w, 2*SegmentLen+100, false)
	n := uint64(0)
	var s Snapshot
	for range 300 {
		for range rnd.IntN(4) {
			i := rnd.IntN(len(hs))
			if err := w.Remove(hs[i]); err != nil {
				t.Fatal(err)
			}
			hs[i] = mustAdd(t, w, Entry{Name: seedName(rnd.Uint64())})
		}
		sameParity(t, w)
		if rnd.IntN(2) == 0 {
			n++
			publishAll(w, hs, func(Handle) Value { return patterned(n) })
			sameParity(t, w)
			if err := r.Snapshot(&s); err != nil || !s.SameCycle || s.Cycle != n {
				t.Fatalf("cycle %d: %+v, %v", n, s.Label, err)
			}
		}
	}
}

func seedName(n uint64) string {
	b := make([]byte, 16)
	for i := range b {
		b[i] = 'a' + byte(n>>(4*i)&15)
	}
	return string(b)
}
