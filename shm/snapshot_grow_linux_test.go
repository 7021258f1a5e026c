package shm

import "testing"

// slowStore does something while a reader maps a segment.
type slowStore struct {
	store
	while func()
}

func (s *slowStore) window(off, n uint64) (*mapping, error) {
	if while := s.while; while != nil {
		s.while = nil
		while()
	}
	return s.store.window(off, n)
}

// TestSnapshotWhileTheMirrorGrows: a snapshot labeled with a cycle must have every
// counter published in it, even if the mirror grew meanwhile.
func TestSnapshotWhileTheMirrorGrows(t *testing.T) {
	path := mirrorPath(t)
	w := mustCreate(t, Options{Path: path, HeartbeatPeriod: patience})
	hs := []Handle{mustAdd(t, w, Entry{Name: "first"})}
	cycle := func() { publishAll(w, hs, func(Handle) Value { return patterned(7) }) }
	cycle()
	r := mustOpen(t, path)
	r.v.store = &slowStore{store: r.v.store, while: func() {
		hs = append(hs, mustAdd(t, w, Entry{Name: "second", Latency: true})) // in a segment of its own
		cycle()
	}}
	var s Snapshot
	if err := r.Snapshot(&s); err != nil {
		t.Fatal(err)
	}
	if len(hs) != 2 {
		t.Fatal("the snapshot mapped no segment")
	}
	v, err := s.Value(hs[1])
	if err != nil {
		t.Fatal(err)
	}
	if s.MaxCycle >= 2 && v != patterned(7) {
		t.Errorf("the snapshot is of cycle %d, and has %+v of a counter that was published in cycle 2", s.MaxCycle, v)
	}
	t.Logf("of cycle %d", s.MaxCycle)
}
