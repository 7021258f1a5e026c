package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// Rename implements renamer.
func (o *fakeHardware) Rename(was, now backend.Placed) {
	id := o.ids[was.Name]
	delete(o.flows, was.Name)
	delete(o.ids, was.Name)
	o.flows[now.Name], o.ids[now.Name] = now, id
	if err := o.gone[was.Name]; err != nil {
		delete(o.gone, was.Name)
		o.gone[now.Name] = err
	}
}

// Alter implements alterer.
func (u *fakeSoftware) Alter(_ context.Context, c backend.Change) ([]backend.Installed, func(bool) error, error) {
	u.call()
	was, now := c.Was, c.Now
	for _, f := range c.Add {
		if u.full != nil && u.full(f.Flow) != nil {
			return nil, nil, u.full(f.Flow)
		}
	}
	for i, f := range now {
		_, known := u.left[f.Flow.Identity()+" "+f.Name]
		if u.full != nil && u.full(f.Flow) != nil && !known && f.Flow.Identity() != was[i].Flow.Identity() {
			return nil, nil, u.full(f.Flow)
		}
	}
	flows, ids, served := maps.Clone(u.flows), maps.Clone(u.ids), maps.Clone(u.served)
	for _, f := range was {
		delete(u.flows, f.Name)
		delete(u.ids, f.Name)
		delete(u.served, f.Name)
	}
	out := make([]backend.Installed, len(now))
	for i, f := range now {
		id := ids[was[i].Name]
		if f.Flow.Identity() != was[i].Flow.Identity() {
			old, there := u.left[f.Flow.Identity()+" "+f.Name]
			if u.left[was[i].Flow.Identity()+" "+was[i].Name] = id; there {
				id = old
			} else {
				id = u.put(f)
			}
		}
		u.flows[f.Name], u.ids[f.Name], u.served[f.Name] = f, id, served[was[i].Name]
		out[i] = backend.Installed{ID: id, Cookie: 1<<50 + uint64(id), Basis: "l2", Source: u.Source(f)}
	}
	for _, f := range c.Leave {
		delete(u.flows, f.Name)
	}
	for _, f := range c.Return {
		u.flows[f.Name] = f
	}
	for _, f := range c.Add {
		id := u.put(f)
		u.served[f.Name] = !c.Shadows
		out = append(out, backend.Installed{ID: id, Cookie: 1<<50 + uint64(id), Basis: "l2", Source: u.Source(f)})
	}
	return out, func(keep bool) error {
		u.call()
		clear(u.left)
		if !keep {
			u.flows, u.ids, u.served = flows, ids, served
		}
		return nil
	}, nil
}

// setModel is the expected set of flows.
type setModel struct {
	live  []flow.Flow // in the order in which they win among equals
	truth map[string]backend.Pair
}

// set is SetFlows of the model.
func (m *setModel) set(flows []flow.Flow, d dataplane.Difference, keepOthers bool) {
	was := make(map[string]string)
	for _, r := range d.Renamed {
		was[r.To] = r.From
	}
	truth := make(map[string]backend.Pair)
	if keepOthers {
		maps.Copy(truth, m.truth)
	}
	live := slices.Clone(m.live)
	for _, f := range flows {
		from := cmp.Or(was[f.Name], f.Name)
		delete(truth, from)
		truth[f.Name] = m.truth[from]
		if i := slices.IndexFunc(live, func(o flow.Flow) bool { return o.Name == from }); i >= 0 {
			live[i] = f
		} else {
			live = append(live, f)
		}
	}
	for _, c := range d.Changed {
		if c.Anew {
			truth[c.Name] = backend.Pair{}
		}
	}
	if !keepOthers {
		live = slices.Clone(flows)
	}
	m.live, m.truth = live, truth
}

// TestSetFlowsBehavesAsAMap compares SetFlows with a map of totals: over a device and XDP, over XDP alone, with devices
// that are lost and return, and with calls that are refused.
func TestSetFlowsBehavesAsAMap(t *testing.T) {
	var calls, refused, renamed, changed, anew, inOver int
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "flows"), rapid.Uint64().Draw(t, "packets")))
		w := newPickyWorld(rapid.Bool().Draw(t, "exclusive"))
		runs++
		s := newStacked(t, filepath.Join(dir, fmt.Sprint(runs)+"-"), w, rapid.Bool().Draw(t, "audit"))
		defer s.e.Close()
		alone := rapid.Bool().Draw(t, "XDP alone")
		if alone {
			s.e.ctl.Lock()
			s.e.backends, s.e.mover.stack = []backend.Backend{w.under}, nil
			s.e.placement.choices.all = s.e.backends
			clear(s.e.placement.choices.byName)
			s.e.ctl.Unlock()
		}
		pool := gen.Flows(rng, 10)
		m := &setModel{truth: make(map[string]backend.Pair)}
		declared, unknown := make(map[string]backend.Pair), make(map[string]bool)
		for range rapid.IntRange(20, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0:
				w.over.lose()
			case 1:
				w.over.down = nil
				if !alone {
					s.refresh(t)
				}
			default:
				flows, opts := drawSet(rng, pool, m.live, alone)
				full := alone && rng.IntN(8) == 0 // else a flow of a lost device may be without a shadow, and the one below it counts
				if full {
					w.under.full = func(f flow.Flow) error {
						if f.Priority%3 == 0 {
							return dataplane.ErrFull
						}
						return nil
					}
				}
				dry := opts
				dry.DryRun = true
				before := fmt.Sprint(s.live())
				plan, err := s.e.SetFlows(context.Background(), flows, dry)
				if err != nil || fmt.Sprint(s.live()) != before {
					t.Fatalf("dry run: %v; flows %s, want %s", err, s.live(), before)
				}
				d, err := s.e.SetFlows(context.Background(), flows, opts)
				w.under.full = nil
				calls++
				if err != nil {
					t.Logf("refused: %v; it was\n%s", err, plan)
					if !errors.Is(err, dataplane.ErrUnplaced) && !errors.Is(err, dataplane.ErrFull) {
						t.Fatal(err)
					}
					refused++
					break
				}
				if d.String() != plan.String() || d.Unchanged != plan.Unchanged {
					t.Fatalf("difference\n%sand in the dry run\n%s", d, plan)
				}
				t.Logf("set, others stay %v:\n%s", opts.KeepOthers, d)
				renamed, changed = renamed+len(d.Renamed), changed+len(d.Changed)
				for _, r := range d.Renamed {
					declared[r.To], unknown[r.To] = declared[r.From], unknown[r.From]
				}
				for _, c := range d.Changed {
					if c.Anew {
						anew++
						declared[c.Name], unknown[c.Name] = backend.Pair{}, false
						s.moves() // some are about the flow before the change
					}
				}
				m.set(flows, d, opts.KeepOthers)
				for name := range declared {
					if _, there := m.truth[name]; !there {
						delete(declared, name)
						delete(unknown, name)
					}
				}
			}
			matcher := oracle.New(m.live)
			for range 20 {
				p := oracle.Packet{Frame: gen.Packet(rng, pool), Interface: "v0"}
				if alone {
					w.under.see(p)
				} else {
					w.send(p)
				}
				if i, ok := matcher.Match(p); ok {
					name := m.live[i].Name
					m.truth[name] = backend.Add(m.truth[name], backend.Pair{Packets: 1, Bytes: uint64(len(p.Frame))})
				}
			}
			s.e.poller.Poll()
			if !alone {
				s.refresh(t)
			}
			s.e.poller.Poll()
			for _, ev := range s.moves() {
				unknown[ev.Object] = unknown[ev.Object] || ev.Uncounted.Unknown
				declared[ev.Object] = backend.Add(declared[ev.Object], backend.Pair{Packets: ev.Uncounted.Packets, Bytes: ev.Uncounted.Bytes})
			}
			var want []string
			for _, name := range slices.Sorted(maps.Keys(m.truth)) {
				want = append(want, name)
				if s.source(name) == "" { // it waits for its device, and its event will say so
					unknown[name] = true
					continue
				}
				got, truth := backend.Add(s.total(t, name), declared[name]), m.truth[name]
				if got != truth && (!unknown[name] || got.Packets > truth.Packets) {
					t.Fatalf("%s (%s) by %s: counted and declared %+v, want %+v", name, s.e.flows[name].Match, s.source(name), got, truth)
				}
				if s.source(name) == "rdma" {
					inOver++
				}
			}
			if got := s.live(); !slices.Equal(got, want) {
				t.Fatalf("flows are %q, want %q", got, want)
			}
			s.checkInForce(t)
			if w.over.broken != "" {
				t.Fatal(w.over.broken)
			}
		}
	})
	t.Logf("%d calls, %d of them refused; %d flows renamed, %d changed, %d of them counted anew; flows stood in the overlay %d times", calls, refused, renamed, changed, anew, inOver)
	// The number of calls depends on the checks of rapid: 100, or 20 with -short.
	if rare := min(refused, renamed, changed, anew, inOver); rare*20 < calls {
		t.Errorf("the rarest event happened %d times in %d calls, want one in 20", rare, calls)
	}
}

// live are the names of the flows that the mirror has.
func (s *stacked) live() (names []string) {
	for _, e := range s.e.writer.Entries() {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return names
}

// drawSet draws a set of flows from a pool: some as they are in the set, some changed, some under another name.
func drawSet(rng *rand.Rand, pool, live []flow.Flow, alone bool) (flows []flow.Flow, opts dataplane.SetOptions) {
	opts.KeepOthers = rng.IntN(3) == 0
	opts.Renames = make(map[string]string)
	taken := make(map[string]bool)
	for _, f := range live {
		taken[f.Name] = true
	}
	for _, f := range live {
		switch rng.IntN(10) {
		case 0, 1: // it goes
			continue
		case 2:
			f.Priority = uint16(rng.IntN(4))
		case 3:
			f.Labels = map[string]string{"n": fmt.Sprint(rng.IntN(3))}
		case 4:
			f.Latency = !f.Latency
		case 5:
			f.Match = pool[rng.IntN(len(pool))].Match
		case 6:
			if to := fmt.Sprintf("r%d", rng.IntN(40)); !taken[to] {
				opts.Renames[f.Name] = to
				taken[to] = true
				f.Name = to
			}
		case 7:
			f.Backend = []flow.Backend{"", "auto", "xdp"}[rng.IntN(3)]
		}
		flows = append(flows, f)
	}
	for _, f := range pool {
		f.Direction, f.Action = flow.Ingress, flow.Count
		f.Backend = []flow.Backend{"", "", "auto", "xdp", "rdma"}[rng.IntN(5)]
		if alone && f.Backend == "rdma" {
			f.Backend = ""
		}
		if !taken[f.Name] && rng.IntN(4) == 0 {
			flows = append(flows, f)
		}
	}
	if rng.IntN(3) == 0 {
		rng.Shuffle(len(flows), func(i, j int) { flows[i], flows[j] = flows[j], flows[i] })
	}
	return flows, opts
}
