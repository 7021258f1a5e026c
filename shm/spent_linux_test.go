package shm

import (
	"errors"
	"fmt"
	"testing"
)

// A slot that has used up its generations must never get another counter, not even after a restart:
// the handle of its first counter would be valid again.
func TestSlotWithoutGenerationsIsNeverUsedAgain(t *testing.T) {
	const last = 1<<32 - 1
	for _, latency := range []bool{false, true} {
		o := with(small, mirrorPath(t))
		w := mustCreate(t, o)
		h := mustAdd(t, w, Entry{Name: "first", Latency: latency})
		if err := w.Remove(h); err != nil {
			t.Fatal(err)
		}
		w.v.slot(h.Index).entry().identity = identity(entRetired, last-1)
		again := mustAdd(t, w, Entry{Name: "last", Latency: latency})
		if again != (Handle{Index: h.Index, Generation: last}) {
			t.Fatalf("the slot is not taken again: %+v, was %+v", again, h)
		}
		if err := w.Remove(again); err != nil {
			t.Fatal(err)
		}
		fill := func(w *Writer) {
			t.Helper()
			var others []Handle
			for {
				h, err := w.Add(Entry{Name: fmt.Sprint("other-", len(others)), Latency: latency})
				if errors.Is(err, ErrFull) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if h.Index == again.Index {
					t.Fatalf("the slot is used again: %+v", h)
				}
				others = append(others, h)
			}
			for _, h := range others {
				if err := w.Remove(h); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill(w)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		fill(mustCreate(t, o))
	}
}

// A writer that gave up must keep the state Fail through Close, so that readers can tell it from an orderly end.
func TestCloseKeepsTheStateFail(t *testing.T) {
	for state, want := range map[State]State{Boot: Halt, Run: Halt, Fail: Fail} {
		path := mirrorPath(t)
		w := mustCreate(t, with(small, path))
		w.SetState(state)
		r := mustOpen(t, path)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if s := r.Status().State; s != want {
			t.Errorf("closed in state %v it says %v, want %v", state, s, want)
		}
	}
}
