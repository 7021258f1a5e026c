package engine

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/shm"
)

// TestCompletionsAreCountedOnceThroughEverything: operations, wrong keys, reconnections, a device
// that goes and returns, in any order and with each source. The counters show exactly the operations that
// Post returned as ended, and no total ever falls.
func TestCompletionsAreCountedOnceThroughEverything(t *testing.T) {
	eachPairSource(t, func(t *testing.T, s *softNIC, _ string) {
		rng := seed.Rand(t)
		control := s.Controlled(t)
		cfg := s.pairConfig(t, local...)
		e := s.startPairs(t, cfg)
		want := make(map[string]backend.Pair)
		stop, fell := neverFalls(t, cfg.Mirror.Path)

		post := func(name string, op dataplane.Operation, n int) dataplane.Posted {
			got, err := e.QueuePairs().Post(t.Context(), name, op, n)
			if err != nil && !errors.Is(err, dataplane.ErrNotConnected) {
				t.Fatal(err)
			}
			want[name+"-"+string(op)] = backend.Add(want[name+"-"+string(op)], ended(got.Completed, got.Errors))
			if op == dataplane.Send {
				other := map[string]string{"a": "b-recv", "b": "a-recv"}[name]
				want[other] = backend.Add(want[other], ended(got.Completed, 0))
			}
			return got
		}
		together := func() {
			if err := e.QueuePairs().Connect(t.Context(), "a", dataplane.QueuePairAddress{}); err != nil {
				t.Fatal(err)
			}
		}
		// settle waits until the counters whose names have that ending show the operations that Post returned. The
		// number of receives in error depends on how many were posted when their queue pair went to ERR, so it
		// is not compared.
		settle := func(ending string) {
			t.Helper()
			told := maps.Clone(want)
			maps.DeleteFunc(told, func(name string, _ backend.Pair) bool { return !strings.HasSuffix(name, ending) })
			for until := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
				got := totalsOf(t, cfg.Mirror.Path, told)
				for name, p := range got {
					if strings.HasSuffix(name, "-recv") {
						got[name] = ended(p.Packets, 0)
					}
				}
				if maps.Equal(got, told) {
					return
				}
				if time.Now().After(until) {
					t.Fatalf("the operations that Post returned, and the totals in the mirror:\n%s", cmp.Diff(told, got))
				}
			}
		}
		ops := []dataplane.Operation{dataplane.Send, dataplane.RDMARead, dataplane.RDMAWrite}
		for range 30 {
			name := []string{"a", "b"}[rng.IntN(2)]
			op, n := ops[rng.IntN(len(ops))], 1+rng.IntN(100)
			switch k := rng.IntN(24); {
			case k < 18:
				if got := post(name, op, n); got != (dataplane.Posted{Completed: uint64(n)}) {
					t.Fatalf("%d %s on %s: %+v", n, op, name, got)
				}
			case k < 20:
				together()
			case k < 23:
				wrong := stateOf(t, e, name).Peer
				wrong.RKey ^= 0x5a5a
				if err := e.QueuePairs().Connect(t.Context(), name, wrong); err != nil {
					t.Fatal(err)
				}
				if got := post(name, dataplane.RDMAWrite, n); got.Completed != 0 || got.Errors == 0 {
					t.Fatalf("%d writes with a wrong key: %+v", n, got)
				}
				together()
			default:
				settle("-recv") // completions of receives that were not polled are lost with the device; Post returns after the completions of sends were
				if err := control.Remove(s.Device); err != nil {
					t.Fatal(err)
				}
				awaitCondition(t, e, "queue-pair-lost", "a", true)
				awaitCondition(t, e, "queue-pair-lost", "b", true)
				if got := post(name, op, n); got != (dataplane.Posted{}) {
					t.Fatalf("without a device: %+v", got)
				}
				if err := control.Return(s.Device); err != nil {
					t.Fatal(err)
				}
				awaitLinked(t, e)
			}
		}
		settle("")
		close(stop)
		if name := <-fell; name != "" {
			t.Errorf("the total of %s fell", name)
		}
	})
}

// awaitLinked waits until both queue pairs are connected to the present address of the other.
func awaitLinked(t *testing.T, e *Engine) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		a, b := stateOf(t, e, "a"), stateOf(t, e, "b")
		if a.State == "RTS" && b.State == "RTS" && a.Peer == b.Local && b.Peer == a.Local {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("not connected again: %+v, %+v", a, b)
		}
	}
}

// neverFalls watches every counter until stop is closed. fell gets the name of a counter that fell, or "".
func neverFalls(t *testing.T, path string) (stop chan struct{}, fell chan string) {
	t.Helper()
	r, err := shm.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := r.Entries()
	if err != nil {
		t.Fatal(err)
	}
	counters := make([]shm.HandleCounter, len(entries))
	for i := range entries {
		if counters[i], err = r.Counter(entries[i].Handle); err != nil {
			t.Fatal(err)
		}
	}
	stop, fell = make(chan struct{}), make(chan string, 1)
	go func() {
		defer r.Close()
		last := make([]shm.Value, len(counters))
		for {
			for i := range counters {
				v, err := counters[i].Load()
				if err != nil {
					continue
				}
				if v.Packets < last[i].Packets || v.Bytes < last[i].Bytes || v.SampledAt < last[i].SampledAt {
					fell <- entries[i].Name
					return
				}
				last[i] = v
			}
			select {
			case <-stop:
				fell <- ""
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return stop, fell
}
