package shm

import "testing"

// A writer is killed in a cycle after it published one of two blocks, so the other block, which is empty, has another
// parity. If the next writer adds a counter there, snapshots must include it.
func TestAnEmptyBlockKeepsTheParityAfterAKill(t *testing.T) {
	s, v := newHeap(t, 1, 0)
	v.ready()
	o := Options{Path: "heap", CoolDown: -1}.withDefaults()
	w, err := newWriter(o, v, nil)
	if err != nil {
		t.Fatal(err)
	}
	hs := addN(t, w, BlockLen+1, false)
	publishAll(w, hs, func(Handle) Value { return patterned(1) })
	if err := w.Remove(hs[BlockLen]); err != nil {
		t.Fatal(err)
	}
	w.BeginCycle()
	w.PublishBlock(0, &Block{patterned(2)})
	if v, err = attach(s); err != nil {
		t.Fatal(err)
	}
	if w, err = newWriter(o, v, nil); err != nil {
		t.Fatal(err)
	}
	fresh, err := w.Exchange(hs[:1], []Entry{{Name: "fresh"}}, []bool{true})
	if err != nil || fresh[0].Index < BlockLen {
		t.Fatal(fresh, err)
	}
	r := mustAttach(t, s)
	var got Snapshot
	if err := r.Snapshot(&got); err != nil {
		t.Fatal(err)
	}
	if v, err := got.Value(fresh[0]); err != nil || v != patterned(2) {
		t.Errorf("the snapshot shows %+v, %v, want %+v", v, err, patterned(2))
	}
	noProblems(t, checkBytes(s.b))
}
