package shm

import (
	"errors"
	"testing"
)

// A reader of the history can still find the name of a removed counter, until another counter gets the slot.
func TestEntryOfARemovedCounterKeepsItsName(t *testing.T) {
	for _, latency := range []bool{false, true} {
		w, r := heapMirror(t, 64, 64, 0, Options{CoolDown: -1})
		old := mustAdd(t, w, Entry{Name: "old", Kind: "flow", Labels: map[string]string{"team": "ops"}, Latency: latency})
		if err := w.Remove(old); err != nil {
			t.Fatal(err)
		}
		e, err := r.Entry(old)
		if !errors.Is(err, ErrGone) || e.Name != "old" || e.Handle != old || e.Labels["team"] != "ops" {
			t.Errorf("after the removal: %+v, %v", e, err)
		}
		if e, err := r.Entry(Handle{old.Index, old.Generation + 1}); !errors.Is(err, ErrGone) || e.Name != "" {
			t.Errorf("of another generation: %+v, %v", e, err)
		}
		next := mustAdd(t, w, Entry{Name: "next", Latency: latency})
		if next.Index != old.Index {
			t.Fatalf("the next counter has slot %d, not %d", next.Index, old.Index)
		}
		if e, err := r.Entry(old); !errors.Is(err, ErrGone) || e.Name != "" {
			t.Errorf("after the slot was used again: %+v, %v", e, err)
		}
	}
}
