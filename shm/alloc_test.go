package shm

import "testing"

// The paths that run per poll cycle or per packet allocate nothing.
func TestHotPathsAllocateNothing(t *testing.T) {
	w, r := heapMirror(t, 128, 4, 16, Options{})
	hs := append(addN(t, w, 100, false), addN(t, w, 2, true)...)
	c := mustCounter(t, r, hs[3])
	cur, err := r.History()
	if err != nil {
		t.Fatal(err)
	}
	var s, some Snapshot
	var vals Block
	for i := range vals {
		vals[i] = Value{1, 1, 1}
	}
	recs := make([]Record, 4)
	watcher := r.WatchEntries()
	for name, fn := range map[string]func(){
		"Load":       func() { _, _ = c.Load() },
		"load":       func() { c.last = 0; _, _ = c.Load() },
		"Snapshot":   func() { _ = r.Snapshot(&s) },
		"SnapshotOf": func() { _ = r.SnapshotOf(&some, hs) },
		"Value":      func() { _, _ = s.Value(hs[0]) },
		"Next":       func() { _, _, _ = cur.Next(recs) },
		"Status":     func() { r.Status() },
		"Entries":    func() { _ = watcher.Update(func(Entry) {}, func(Handle) {}) },
		"cycle": func() {
			w.BeginCycle()
			w.PublishBlock(0, &vals)
			w.PublishBlock(1, &vals)
			w.PublishRecord(hs[100].Index, Value{1, 1, 1})
			w.AppendHistory(hs[0], Value{1, 1, 1})
			w.EndCycle(Now())
		},
	} {
		fn() // allocations that are made once
		if n := testing.AllocsPerRun(100, fn); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
