package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// Where a flow is counted, and why not elsewhere, follows from the flows that there are, and not from how
// they came: after any series of changes it is as if all of them had been added at once, and a look at
// every flow changes nothing.
func TestPlacementsDoNotDependOnTheSeriesOfChanges(t *testing.T) {
	dir := t.TempDir()
	runs, changes, inOver, inUnder := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "flows"), 1))
		exclusive := rapid.Bool().Draw(t, "exclusive")
		// Every shadow has room here: flows below a flow without a shadow could not leave the overlay.
		start := func() *stacked {
			runs++
			w := &world{over: newFakeHardware(exclusive), under: newFakeSoftware()}
			w.over.cannot = func(f flow.Flow) error {
				if len(f.Match.String())%6 == 0 {
					return errors.New("inexpressible")
				}
				return nil
			}
			w.over.refuse = func(f flow.Flow) error {
				if len(f.Match.String())%7 == 0 {
					return errors.New("no memory")
				}
				return nil
			}
			w.under.full = nil
			return newStacked(t, filepath.Join(dir, fmt.Sprint(runs)+"-"), w, false)
		}
		s := start()
		defer s.e.Close()
		pool := gen.Flows(rng, 60)
		var live []flow.Flow // in the order of addition
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			n := 1 + rng.IntN(4)
			if rng.IntN(3) > 0 {
				var fresh []flow.Flow
				for _, i := range rng.Perm(len(pool))[:n] {
					f := pool[i]
					f.Direction, f.Action, f.Backend = flow.Ingress, flow.Count, []flow.Backend{"", "", "", "xdp"}[i%4]
					if !slices.ContainsFunc(live, func(l flow.Flow) bool { return l.Name == f.Name }) {
						fresh = append(fresh, f)
					}
				}
				if _, err := s.e.AddFlows(context.Background(), fresh...); err != nil {
					t.Fatalf("adding %d flows: %v", len(fresh), err)
				}
				live = append(live, fresh...)
			} else {
				var names []string
				for _, i := range rng.Perm(len(live))[:min(n, len(live))] {
					names = append(names, live[i].Name)
				}
				if err := s.e.RemoveFlows(context.Background(), names...); err != nil {
					t.Fatalf("removing %q: %v", names, err)
				}
				live = slices.DeleteFunc(live, func(f flow.Flow) bool { return slices.Contains(names, f.Name) })
			}
			changes++
		}
		got := placedBy(t, s.e)
		s.e.ctl.Lock()
		err := s.e.arranger.arrange(context.Background(), nil, nil)
		s.e.ctl.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if all := placedBy(t, s.e); !reflect.DeepEqual(got, all) {
			t.Fatalf("a look at every flow moves some: from %v to %v", got, all)
		}
		fresh := start()
		defer fresh.e.Close()
		if _, err := fresh.e.AddFlows(context.Background(), live...); err != nil {
			t.Fatalf("adding all %d flows at once: %v", len(live), err)
		}
		if once := placedBy(t, fresh.e); !reflect.DeepEqual(got, once) {
			for name, p := range once {
				if !reflect.DeepEqual(got[name], p) {
					t.Errorf("%s: placed %+v, added at once it is %+v", name, got[name], p)
				}
			}
			t.FailNow()
		}
		for _, p := range got {
			if p.Source.Backend == "rdma" {
				inOver++
			} else {
				inUnder++
			}
		}
	})
	t.Logf("%d changes; %d flows ended in the overlay, %d behind it", changes, inOver, inUnder)
	if min(inOver, inUnder) == 0 {
		t.Error("the test looks at little")
	}
}

// placedBy is where the flows are counted, by name.
func placedBy(t *rapid.T, e *Engine) map[string]dataplane.Placement {
	t.Helper()
	placed, err := e.Placements(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]dataplane.Placement)
	for _, p := range placed {
		p.Counter, p.Order = dataplane.Handle{}, 0 // of the series that has led there
		out[p.Flow.Name] = p
	}
	return out
}
