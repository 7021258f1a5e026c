package rdma

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	labseed "github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/oracle/gen"
	"github.com/flowtally/flowtally/probe"
)

// drawForDevX draws flows that DevX can count, each by few rules.
func drawForDevX(rng *rand.Rand) (drawn []flow.Flow) {
	for len(drawn) < 10 {
		for _, f := range gen.Flows(rng, 40) {
			if limits(f.Match, withDevX) != nil {
				continue
			}
			if rules, err := f.Match.Expand(); err == nil && len(rules) <= 4 {
				drawn = append(drawn, f)
			}
		}
	}
	return drawn
}

// The test adds and removes random overlapping flows. After every single change of a rule, overlapping flows must have levels in
// the order in which they win, so that the first match is always the right one.
func TestRulesAreInOrderAtEveryMoment(t *testing.T) {
	rng := labseed.Rand(t)
	refused, most := 0, 0
	for range 30 {
		h := newFakeHost("eth0")
		b := openFake(t, h, "eth0")
		flows := make(map[string]backend.Placed)
		winner := make(map[*fakeBulk]map[int]*backend.Placed) // by slot
		overlap := make(map[[2]string]bool)                   // of two flows by their names, each of which stands for one flow
		overlaps := func(x, y *backend.Placed) bool {
			both := [2]string{x.Name, y.Name}
			o, known := overlap[both]
			if !known {
				o = flow.Overlap(&x.Flow, &y.Flow)
				overlap[both] = o
			}
			return o
		}
		h.nic(0).onRule = func(rules []*fakeRule) {
			for i, r := range rules {
				most = max(most, r.level)
				for _, q := range rules[:i] {
					x, y := winner[r.bulk][r.slot], winner[q.bulk][q.slot]
					if x == nil || y == nil || x.Name == y.Name || !overlaps(x, y) {
						continue
					}
					if (backend.ByPrecedence(*x, *y) < 0) != (r.level < q.level) || r.level == q.level {
						t.Errorf("%s (priority %d, level %d) and %s (priority %d, level %d)", x.Match, x.Priority, r.level, y.Match, y.Priority, q.level)
					}
				}
			}
		}
		drawn := drawForDevX(rng)
		for order := range 40 {
			if len(flows) > 0 && rng.IntN(3) == 0 {
				for name, f := range flows {
					if err := b.Remove(t.Context(), []backend.Placed{f}); err != nil {
						t.Fatal(err)
					}
					delete(flows, name)
					break
				}
				continue
			}
			f := backend.Placed{Flow: drawn[order%len(drawn)], Order: uint32(order)}
			f.Name, f.Interface, f.Direction, f.Priority = fmt.Sprint(order), "", flow.Ingress, uint16(rng.IntN(4))
			// A rule on the device only names its slot. So note the flow of the slot before the rules are added.
			b.mu.Lock()
			x := &entry{Placed: f}
			p, err := b.devices[0].prepare(x)
			if err != nil {
				b.mu.Unlock()
				continue
			}
			x.devices = []*deviceFlow{p}
			bulk := p.pool.bulk.(*fakeBulk)
			if winner[bulk] == nil {
				winner[bulk] = make(map[int]*backend.Placed)
			}
			winner[bulk][p.slot] = &f
			if err = b.devices[0].startRules(p); err == nil {
				err = b.startReading([]*entry{x})
				b.assignIDs([]*entry{x})
				flows[f.Name] = f
			} else {
				err = b.undoInstall([]*entry{x})
				refused++
			}
			b.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
		}
		h.nic(0).onRule = nil // Close, at the end of the test, removes the rules in no order
		if t.Failed() {
			return
		}
	}
	t.Logf("levels up to %d, %d flows refused", most, refused)
	if most < 3 {
		t.Error("the flows hardly overlap: the test looks at little")
	}
}

func TestAFlowWithoutAFreeLevelIsRefused(t *testing.T) {
	b := openFake(t, newFakeHost("eth0"), "eth0")
	nested := func(i int) backend.Placed {
		return backend.Placed{Flow: flow.Flow{Name: fmt.Sprint(i), Priority: uint16(100 - i), Match: flow.MustParse("m", fmt.Sprintf("ipv4 dst 10.0.0.0/%d", 8+i)).Match}}
	}
	for i := range numLevels { // each wins over all earlier ones, which have to move
		mustInstall(t, b, nested(i))
	}
	_, err := b.Install(t.Context(), []backend.Placed{nested(numLevels)})
	if !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("error %v, want that there are no more priorities", err)
	}
	lab.Step(t, fixOf(t, err), "make the flows overlap less")
	mustInstall(t, b, backend.Placed{Flow: flow.Flow{Name: "aside", Match: flow.MustParse("m", "ipv6").Match}})
}
