package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/internal/tick"
	"github.com/flowtally/flowtally/shm"
)

// gatedBackend does not return from Install, or from Conditions, before the test lets it.
type gatedBackend struct {
	*handBackend
	install, conditions atomic.Pointer[chan struct{}] // nil: they return at once
	refuse              error                         // of Install, behind its gate
}

func closeGate(at *atomic.Pointer[chan struct{}]) (open func()) {
	gate := make(chan struct{})
	at.Store(&gate)
	return func() {
		at.Store(nil)
		close(gate)
	}
}

func (b *gatedBackend) Install(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	if gate := b.install.Load(); gate != nil {
		<-*gate
		if b.refuse != nil {
			return nil, b.refuse
		}
	}
	return b.handBackend.Install(ctx, flows)
}

func (b *gatedBackend) Conditions() []dataplane.Condition {
	if gate := b.conditions.Load(); gate != nil {
		<-*gate
	}
	return b.handBackend.Conditions()
}

// raise makes these the backend's conditions.
func (b *gatedBackend) raise(codes ...dataplane.ConditionCode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.raised = nil
	for _, code := range codes {
		b.raised = append(b.raised, dataplane.Condition{Code: code, Severity: dataplane.Low, Object: "v0", Text: "text"})
	}
}

// startGated starts an instance with the flow old in the bubble of a test.
func startGated(t *testing.T) (*Engine, *gatedBackend) {
	t.Helper()
	b := &gatedBackend{handBackend: newHand("hand")}
	cfg := config(t, flow.Flow{Name: "old", Match: match(t, "udp")})
	cfg.Poll.Period = 100 * time.Millisecond
	cfg.Interfaces = []dataplane.Interface{{Name: "v0"}}
	ctx := inject.Ticker(inject.Backends(context.Background(), b), tick.NewRuntime())
	e, err := New(ctx, cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.count("old", backend.Pair{Packets: 5, Bytes: 500})
	time.Sleep(time.Second)
	return e, b
}

// wantFlows checks what Placements lists, at once.
func wantFlows(t *testing.T, e *Engine, want ...string) {
	t.Helper()
	begin := time.Now()
	placed, err := e.Placements(t.Context())
	var got []string
	for _, p := range placed {
		got = append(got, p.Flow.Name)
		if _, err := e.writer.Last(p.Counter); err != nil {
			t.Errorf("flow %s: %v", p.Flow.Name, err)
		}
	}
	if err != nil || !slices.Equal(got, want) || time.Since(begin) != 0 {
		t.Errorf("flows %q after %v, %v; want %q at once", got, time.Since(begin), err, want)
	}
}

func codes(t *testing.T, e *Engine) (out []string) {
	t.Helper()
	conditions, err := e.Conditions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conditions {
		out = append(out, string(c.Code))
	}
	return out
}

// TestReadersSeeTheSetBeforeAChangeUntilItEnds: a backend takes a minute over a change. Flows, interfaces, information and
// conditions are read meanwhile, a condition that comes is raised, and a removed mirror is made anew, each within a second or
// two. When the call has returned, the next list has its outcome.
func TestReadersSeeTheSetBeforeAChangeUntilItEnds(t *testing.T) {
	fresh := flow.Flow{Name: "new", Match: match(t, "tcp")}
	settings := func(e *Engine) *dataplane.Config {
		cfg := e.cfg
		cfg.Interfaces = []dataplane.Interface{{Name: "v1"}}
		return &cfg
	}
	for name, test := range map[string]struct {
		change     func(*Engine) error
		refuse     error
		want       []string
		interfaces string
	}{
		"added": {
			change: func(e *Engine) error { _, err := e.AddFlows(context.Background(), fresh); return err },
			want:   []string{"new", "old"}, interfaces: "v0",
		},
		"set, with other interfaces": {
			change: func(e *Engine) error {
				_, err := e.SetFlows(context.Background(), []flow.Flow{fresh}, dataplane.SetOptions{Config: settings(e)})
				return err
			},
			want: []string{"new"}, interfaces: "v1",
		},
		"refused": {
			change: func(e *Engine) error {
				_, err := e.SetFlows(context.Background(), []flow.Flow{fresh}, dataplane.SetOptions{Config: settings(e)})
				return err
			},
			refuse: errors.New("no room"), want: []string{"old"}, interfaces: "v0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, b := startGated(t)
				defer e.Close()
				b.refuse = test.refuse
				open := closeGate(&b.install)
				changed := behind(func() error { return test.change(e) })
				synctest.Wait()

				check := func() {
					t.Helper()
					wantFlows(t, e, "old")
					_, err1 := e.Info(t.Context())
					_, err2 := e.ReservedWords(t.Context())
					list, err3 := e.Interfaces(t.Context())
					if err := errors.Join(err1, err2, err3); err != nil || list[0].Name != "v0" {
						t.Errorf("interfaces %v, %v", list, err)
					}
				}
				check()
				b.raise(dataplane.CodeXDPGeneric)
				if err := os.Remove(e.cfg.Mirror.Path); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * healthPeriod)
				synctest.Wait()
				check()
				if got := codes(t, e); !slices.Contains(got, string(dataplane.CodeXDPGeneric)) || !slices.Contains(got, string(dataplane.CodeMirrorRemade)) {
					t.Errorf("conditions %q", got)
				}
				wantInMirror(t, e, "old", 5)

				time.Sleep(time.Minute)
				open()
				if err := <-changed; !errors.Is(err, test.refuse) {
					t.Fatal(err)
				}
				wantFlows(t, e, test.want...)
				if list, err := e.Interfaces(t.Context()); err != nil || list[0].Name != test.interfaces {
					t.Errorf("interfaces %v, %v; want %s", list, err, test.interfaces)
				}
				time.Sleep(time.Second)
				for _, name := range test.want {
					wantInMirror(t, e, name, map[string]uint64{"old": 5}[name])
				}
			})
		})
	}
}

// lossyBackend is a gatedBackend with hooks.
type lossyBackend struct {
	*gatedBackend
	lost atomic.Uint32 // when the last outage ended
}

func (b *lossyBackend) AddShadows(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	return b.Install(ctx, flows)
}

func (b *lossyBackend) SetActive(context.Context, []backend.Placed, bool) error { return nil }

func (b *lossyBackend) CountApart(context.Context, []backend.Placed, string, bool) ([]uint32, error) {
	return nil, errors.ErrUnsupported
}

func (b *lossyBackend) Look()               {}
func (b *lossyBackend) Rely(backend.Placed) {}

func (b *lossyBackend) Now() backend.Moment { return backend.Moment(b.lost.Load()) }

func (b *lossyBackend) Outage(backend.Placed) (last backend.Moment, open bool) { return b.Now(), false }

func (b *lossyBackend) CompleteSince(backend.Placed) (since backend.Moment, ok bool) {
	return b.Now(), true
}

// TestALossIsDeclaredWhileAChangeIsUnderWay: a backend takes a minute over a change, and a hook is lost and taken again. The
// flows of before have a discontinuity within two seconds, once, and keep it when the change is refused.
func TestALossIsDeclaredWhileAChangeIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &lossyBackend{gatedBackend: &gatedBackend{handBackend: newHand("hand"), refuse: errors.New("no room")}}
		cfg := config(t, flow.Flow{Name: "old", Match: match(t, "udp")})
		cfg.Poll.Period = 100 * time.Millisecond
		ctx := inject.Ticker(inject.Backends(context.Background(), b), tick.NewRuntime())
		e, err := New(ctx, cfg, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		losses := func() uint64 {
			found, err := reader(t, e.cfg).Find("old")
			if err != nil || len(found) != 1 {
				t.Fatalf("%d entries, %v", len(found), err)
			}
			return found[0].Continuity.Discontinuities
		}

		open := closeGate(&b.install)
		changed := behind(func() error {
			_, err := e.AddFlows(context.Background(), flow.Flow{Name: "new", Match: match(t, "tcp")})
			return err
		})
		synctest.Wait()
		b.lost.Add(1)
		signal(b.changed)
		time.Sleep(2 * healthPeriod)
		synctest.Wait()
		if n := losses(); n != 1 {
			t.Errorf("%d discontinuities while the change is under way, want 1", n)
		}

		open()
		if err := <-changed; !errors.Is(err, b.refuse) {
			t.Fatal(err)
		}
		time.Sleep(2 * healthPeriod)
		synctest.Wait()
		if n := losses(); n != 1 {
			t.Errorf("%d discontinuities after the change, want 1", n)
		}
	})
}

// TestABackendThatIsSilentHoldsUpNoOtherCondition: a backend does not answer, as XDP while it builds the trees. Its last
// conditions stay, the others are raised, and the mirror is made anew.
func TestABackendThatIsSilentHoldsUpNoOtherCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, b := startGated(t)
		defer e.Close()
		b.raise(dataplane.CodeXDPGeneric)
		time.Sleep(2 * healthPeriod)
		open := closeGate(&b.conditions)
		if err := os.Remove(e.cfg.Mirror.Path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * healthPeriod)
		synctest.Wait()
		if got := codes(t, e); !slices.Contains(got, string(dataplane.CodeXDPGeneric)) || !slices.Contains(got, string(dataplane.CodeMirrorRemade)) {
			t.Errorf("conditions %q", got)
		}
		b.raise()
		open()
		time.Sleep(3 * healthPeriod)
		if got := codes(t, e); slices.Contains(got, string(dataplane.CodeXDPGeneric)) {
			t.Errorf("conditions %q after the backend has answered", got)
		}
	})
}

// wantInMirror looks a counter up in the file, as a reader that comes now does.
func wantInMirror(t *testing.T, e *Engine, name string, packets uint64) {
	t.Helper()
	r := reader(t, e.cfg)
	h, err := r.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Counter(h)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := c.Load(); err != nil || v.Packets != packets {
		t.Errorf("%s: %+v, %v; want %d packets", name, v, err, packets)
	}
}

// checkCall is called by a backend that the engine waits for.
func (s *stacked) checkCall(t rapid.TB) {
	t.Helper()
	if !s.e.ctl.TryRead() {
		t.Error("the engine waits for a backend and lets nobody read")
		return
	}
	s.e.ctl.EndRead()
}

// checkKnown is called whenever readers of ctl are let in. The mirror could be made anew at this instant: the engine
// knows the entries that are there, and no discontinuity would be lost.
func checkKnown(t rapid.TB, e *Engine) {
	t.Helper()
	if e.writer.Intact() != nil {
		return // the test has damaged it
	}
	known := make(map[string]shm.Entry)
	for _, entry := range e.entries() {
		known[entry.Name] = entry
	}
	for _, entry := range e.writer.Entries() {
		if strings.HasPrefix(entry.Name, "~") { // it waits for its flow: the catalogue knows it
			continue
		}
		k, ok := known[entry.Name]
		if !ok || k.Handle != entry.Handle || k.Latency != entry.Latency || k.Continuity.Discontinuities < entry.Continuity.Discontinuities {
			t.Errorf("the mirror has\n%+v, the engine\n%+v, %v", entry, k, ok)
		}
		delete(known, entry.Name)
	}
	if len(known) > 0 {
		t.Errorf("the engine has %+v, which the mirror has not", known)
	}
}

// TestReadersComeInAfterEachFlowOfALargeChange adds, replaces and removes many flows, in one call each. Between two times that
// readers of ctl are let in, the mirror gains or loses one entry at most. Flows that are altered in their places are another
// matter: their entries are exchanged all at once.
func TestReadersComeInAfterEachFlowOfALargeChange(t *testing.T) {
	const n = 60
	flows := func(prefix string) (all []flow.Flow) {
		for i := range n {
			all = append(all, flow.Flow{Name: fmt.Sprintf("%s%d", prefix, i), Match: match(t, fmt.Sprintf("udp dport %d", 1000+i))})
		}
		return all
	}
	var e *Engine
	entries := func() map[shm.Handle]bool {
		all := make(map[shm.Handle]bool)
		for _, entry := range e.writer.Entries() {
			all[entry.Handle] = true
		}
		return all
	}
	var last map[shm.Handle]bool // nil: no call is under way
	steps, most := 0, 0
	ctx := inject.Closed(inject.Backends(context.Background(), newHand("hand")), func(closed bool) {
		if closed || last == nil {
			return
		}
		now, differ := entries(), 0
		for h := range now {
			if !last[h] {
				differ++
			}
		}
		for h := range last {
			if !now[h] {
				differ++
			}
		}
		steps, most, last = steps+differ, max(most, differ), now
	})
	e, err := New(ctx, config(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, e)
	e.stop() // the watcher
	e.stopped.Wait()

	for _, c := range []struct {
		what string
		call func() error
		want int // entries that come or go
	}{
		{"added", func() error { _, err := e.AddFlows(t.Context(), flows("a")...); return err }, n},
		{"set to others", func() error { _, err := e.SetFlows(t.Context(), flows("b"), dataplane.SetOptions{}); return err }, 2 * n},
		{"removed", func() error { return e.RemoveFlows(t.Context(), names(flows("b"))...) }, n},
	} {
		last, steps, most = entries(), 0, 0
		if err := c.call(); err != nil {
			t.Fatal(err)
		}
		if steps != c.want || most != 1 {
			t.Errorf("%s: %d entries of the mirror came or went, %d of them at once; want %d, one by one", c.what, steps, most, c.want)
		}
		last = nil
	}
}

// checkInForce compares the set in force with the flows of the engine, between two calls.
func (s *stacked) checkInForce(t rapid.TB) {
	t.Helper()
	placed := s.e.inForce.placements(nil)
	for _, p := range placed {
		c, x := s.e.flows[p.Flow.Name], s.e.refused.flows[p.Flow.Name]
		switch {
		case c != nil && c.shown == s.e.inForce.flows[c.Name]:
		case c == nil && x != nil && x == s.e.inForce.refused[x.Name]:
		default:
			t.Errorf("the set in force has %+v, which is not a flow as it is", p)
		}
	}
	if want := len(s.e.flows) + len(s.e.refused.flows); len(placed) != want {
		t.Errorf("the set in force has %d flows, want %d", len(placed), want)
	}
}
