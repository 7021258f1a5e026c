package engine

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// The model: flows come and go, devices are lost and return, packets pass, and at
// every step each total is the number of packets that the linear matcher named since the flow was added, less
// the declared ones; no packet is counted twice.
func TestEachPacketIsCountedOnceByWhateverCountsIt(t *testing.T) {
	moves, inOver, inUnder := 0, 0, 0
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "flows"), rapid.Uint64().Draw(t, "packets")))
		audit := rapid.Bool().Draw(t, "audit")
		w := newPickyWorld(rapid.Bool().Draw(t, "exclusive"))
		w.under.full = nil
		runs++
		s := newStacked(t, filepath.Join(dir, fmt.Sprint(runs)+"-"), w, audit)
		defer s.e.Close()
		pool := gen.Flows(rng, 14)
		var live []flow.Flow // in the order of addition
		truth, declared := make(map[string]backend.Pair), make(map[string]backend.Pair)
		unknown := make(map[string]bool)
		// So many steps that the 20 runs of -short, which the race lane asks for, move flows a hundred times.
		for range rapid.IntRange(40, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1, 2:
				f := pool[rng.IntN(len(pool))]
				f.Direction, f.Action = flow.Ingress, flow.Count
				f.Backend = []flow.Backend{"", "", "", "auto", "xdp"}[rng.IntN(5)]
				if _, there := truth[f.Name]; there {
					continue
				}
				if _, err := s.e.AddFlows(context.Background(), f); err != nil {
					t.Fatalf("adding %s: %v", f.Match, err)
				}
				live = append(live, f)
				truth[f.Name] = backend.Pair{}
			case 3:
				if len(live) == 0 {
					continue
				}
				i := rng.IntN(len(live))
				name := live[i].Name
				if err := s.e.RemoveFlows(context.Background(), name); err != nil {
					t.Fatal(err)
				}
				live = slices.Delete(live, i, i+1)
				delete(truth, name)
				delete(declared, name)
				delete(unknown, name)
				s.moves()
			case 4:
				w.over.lose()
			case 5:
				w.over.down = nil
				s.refresh(t)
			}
			matcher := oracle.New(live)
			for range 20 {
				p := oracle.Packet{Frame: gen.Packet(rng, pool), Interface: "v0"}
				w.send(p)
				if i, ok := matcher.Match(p); ok {
					truth[live[i].Name] = backend.Add(truth[live[i].Name], backend.Pair{Packets: 1, Bytes: uint64(len(p.Frame))})
				}
			}
			s.e.poller.Poll()
			s.refresh(t)
			s.e.poller.Poll()
			for _, ev := range s.moves() {
				moves++
				unknown[ev.Object] = unknown[ev.Object] || ev.Uncounted.Unknown
				declared[ev.Object] = backend.Add(declared[ev.Object], backend.Pair{Packets: ev.Uncounted.Packets, Bytes: ev.Uncounted.Bytes})
			}
			for _, name := range slices.Sorted(maps.Keys(truth)) {
				got, want := backend.Add(s.total(t, name), declared[name]), truth[name]
				if audit && unknown[name] {
					t.Fatalf("%s: something is unknown though XDP counts beside", name)
				}
				if got != want && (!unknown[name] || got.Packets > want.Packets) {
					t.Fatalf("%s (%s) by %s: counted and declared %+v, want %+v", name, s.e.flows[name].Match, s.source(name), got, want)
				}
				if s.source(name) == "rdma" {
					inOver++
				} else {
					inUnder++
				}
			}
			if w.over.broken != "" {
				t.Fatal(w.over.broken)
			}
		}
	})
	t.Logf("%d moves; flows stood in the overlay %d times, behind it %d times", moves, inOver, inUnder)
	if min(moves, inOver, inUnder) < 100 {
		t.Error("the test looks at little")
	}
}
