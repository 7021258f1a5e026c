package shm

import "testing"

// A writer dies in the middle of a publish, after it has announced to overwrite
// the copy of the last completed cycle. A snapshot must not fail then: it has
// values of two cycles, and its label says so.
func TestSnapshotAfterADeathInMidPublishIsOfTwoCycles(t *testing.T) {
	w, r := heapMirror(t, 128, 0, 0, Options{})
	hs := addN(t, w, 128, false)
	publish := func(block int, n uint64) {
		var vals Block
		for i := range vals {
			vals[i] = patterned(n)
		}
		w.PublishBlock(block, &vals)
	}
	w.BeginCycle()
	publish(0, 1)
	publish(1, 1)
	w.EndCycle(1)
	w.BeginCycle() // and never ends
	publish(0, 2)
	b := w.v.slot(0).block()
	announce64(b.intent(), nextSeq(*b.seq(), false))
	b.copy(*b.seq() ^ 1).values[0] = Value{9, 9, 9} // half filled

	var all, some Snapshot
	if err := r.Snapshot(&all); err != nil {
		t.Fatal(err)
	}
	if err := r.SnapshotOf(&some, hs); err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]*Snapshot{"all": &all, "some": &some} {
		if s.SameCycle || s.MinCycle != 1 || s.MaxCycle != 2 || s.SkewNanos != 1 {
			t.Errorf("%s: %+v", what, s.Label)
		}
	}
	for i, h := range hs {
		want := patterned(2 - uint64(i/64))
		if v, err := all.Value(h); err != nil || v != want || some.List[i] != want {
			t.Fatalf("%d: %v and %v, want %v, %v", i, v, some.List[i], want, err)
		}
	}
}
