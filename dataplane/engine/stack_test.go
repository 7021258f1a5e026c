package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/oracle"
)

// stacked is an engine over a world, polled and refreshed by the test alone.
type stacked struct {
	*world
	e      *Engine
	cfg    dataplane.Config
	events <-chan dataplane.Event
}

func newStacked(t rapid.TB, dir string, w *world, audit bool) *stacked {
	t.Helper()
	s := &stacked{world: w, cfg: dataplane.Config{
		Backend: "auto", Interfaces: []dataplane.Interface{{Name: "v0"}},
		Mirror: dataplane.MirrorConfig{Path: dir + "t.mirror", Counters: 64, History: -1},
		Poll:   dataplane.PollConfig{Period: time.Hour}, RDMA: dataplane.RDMAConfig{Audit: audit},
	}}
	s.start(t)
	return s
}

func (s *stacked) start(t rapid.TB) {
	t.Helper()
	var err error
	s.over.called, s.under.called = nil, nil
	var started atomic.Pointer[Engine]
	ctx := inject.Closed(inject.Backends(context.Background(), s.over, s.under), func(closed bool) {
		if e := started.Load(); e != nil && !closed && !e.closed() {
			checkKnown(t, e)
		}
	})
	if s.e, err = New(ctx, s.cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	s.over.called = func() { s.checkCall(t) }
	s.under.called = s.over.called
	s.e.stop() // its goroutines: the test does their work
	s.e.stopped.Wait()
	s.e.mover.sleep = func(time.Duration) {} // no packet is in flight between fakes
	started.Store(s.e)
	if s.events, err = s.e.Events(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// total returns the value in the mirror after a poll.
func (s *stacked) total(t rapid.TB, name string) backend.Pair {
	t.Helper()
	s.e.poller.Poll()
	c := s.e.flows[name]
	if c == nil {
		t.Fatalf("no flow %q", name)
	}
	v, err := s.e.writer.Last(c.handle)
	if err != nil {
		t.Fatal(err)
	}
	return backend.Pair{Packets: v.Packets, Bytes: v.Bytes}
}

// look is what the watcher does once a second.
func (s *stacked) look() {
	s.e.watcher.audit()
	s.e.watcher.updateConditions()
}

func (s *stacked) showSources() {
	s.e.ctl.Lock()
	defer s.e.ctl.Unlock()
	s.e.watcher.showSources()
}

// moves are the changes of sources since the last call, oldest first.
func (s *stacked) moves() (out []dataplane.Event) {
	s.e.commit() // a test that calls a part of the engine does not hold ctl
	for {
		select {
		case ev := <-s.events:
			if ev.Kind == dataplane.SourceChanged {
				out = append(out, ev)
			}
		default:
			return out
		}
	}
}

func (s *stacked) refresh(t rapid.TB) {
	t.Helper()
	if !s.e.watcher.refreshSources(context.Background(), true) {
		t.Fatal("a control call is under way")
	}
	s.checkInForce(t)
}

func (s *stacked) source(name string) string { return string(s.e.flows[name].source.Backend) }

// refusedBy is the reason that a placement keeps of a backend.
func refusedBy(p dataplane.Placement, backend string) string {
	for _, r := range p.Rejected {
		if r.Backend == backend {
			return r.Reason
		}
	}
	return ""
}

func udpFlow(t testing.TB, name, text string, priority uint16) flow.Flow {
	return flow.Flow{Name: name, Match: match(t, text), Priority: priority}
}

// udpTo is a frame to a port, of so many bytes.
func udpTo(port uint16, size int) []byte {
	return frame.Sized(size, frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}},
		frame.IPv4{Src: frame.Addr("198.51.100.1"), Dst: frame.Addr("192.0.2.1")}, frame.UDP{Src: 9, Dst: port})
}

func packetTo(port uint16) oracle.Packet {
	return oracle.Packet{Frame: udpTo(port, 60), Interface: "v0"}
}

// A flow that only XDP can count displaces those below it that it overlaps, and
// they go back when it goes.
func TestAFlowDisplacesThoseBelowIt(t *testing.T) {
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
	w.over.cannot = func(f flow.Flow) error {
		if f.Match.IPv4 != nil && f.Match.IPv4.TTL.Mask != 0 {
			return errors.New("no spec looks at ipv4.ttl")
		}
		return nil
	}
	s := newStacked(t, t.TempDir()+"/", w, false)
	defer s.e.Close()
	ctx := t.Context()
	if _, err := s.e.AddFlows(ctx, udpFlow(t, "dns", "udp dport 53", 5), udpFlow(t, "web", "udp dport 80", 5), udpFlow(t, "rest", "udp", 9)); err != nil {
		t.Fatal(err)
	}
	if w.under.attached {
		t.Error("XDP is attached though nobody needs it")
	}
	send := func(n int) {
		for range n {
			for _, port := range []uint16{53, 80, 99} {
				w.send(packetTo(port))
			}
		}
	}
	send(10)
	for _, want := range []struct{ name, source string }{{"dns", "rdma"}, {"web", "rdma"}, {"rest", "rdma"}} {
		if got := s.source(want.name); got != want.source {
			t.Errorf("%s is counted by %s, want %s", want.name, got, want.source)
		}
	}
	if _, err := s.e.AddFlows(ctx, udpFlow(t, "near", "ipv4 ttl 64 udp dport 53", 1)); err != nil {
		t.Fatal(err)
	}
	send(10)
	for _, want := range []struct {
		name, source string
		packets      uint64
	}{{"near", "xdp", 10}, {"dns", "xdp", 10}, {"web", "rdma", 20}, {"rest", "xdp", 20}} {
		if got, n := s.source(want.name), s.total(t, want.name).Packets; got != want.source || n != want.packets {
			t.Errorf("%s: %d packets by %s, want %d by %s", want.name, n, got, want.packets, want.source)
		}
	}
	placed, err := s.e.Placements(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range placed {
		if (p.Source.Backend == "xdp") != (len(p.Rejected) == 1 && p.Rejected[0].Backend == "rdma") {
			t.Errorf("%s: counted by %s, rejected %v", p.Flow.Name, p.Source.Backend, p.Rejected)
		}
	}
	if err := s.e.RemoveFlows(ctx, "near"); err != nil {
		t.Fatal(err)
	}
	send(10)
	for name, packets := range map[string]uint64{"dns": 20, "web": 30, "rest": 30} {
		if got, n := s.source(name), s.total(t, name).Packets; got != "rdma" || n != packets {
			t.Errorf("%s: %d packets by %s, want %d by rdma", name, n, got, packets)
		}
	}
	if w.under.attached {
		t.Error("XDP stays attached though nobody needs it any more")
	}
}

// The reason why hardware does not count a flow is the current one; a slice that a caller got before does not change.
func TestTheReasonAgainstHardwareIsThatOfNow(t *testing.T) {
	var why error
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
	w.over.cannot = func(flow.Flow) error { return why }
	s := newStacked(t, t.TempDir()+"/", w, false)
	defer s.e.Close()
	reason := func() dataplane.Placement {
		placed, err := s.e.Placements(t.Context())
		if err != nil || len(placed) != 1 {
			t.Fatalf("%+v, %v", placed, err)
		}
		return placed[0]
	}
	why = errors.New("no device belongs to it")
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "web", "ipv4 udp", 0)); err != nil {
		t.Fatal(err)
	}
	before := reason()
	why = errors.New("its device has no counters")
	s.refresh(t)
	for _, want := range []struct {
		of     dataplane.Placement
		reason string
	}{{before, "no device belongs to it"}, {reason(), "its device has no counters"}} {
		if got := refusedBy(want.of, "rdma"); got != want.reason || len(want.of.Rejected) != 1 {
			t.Errorf("rejected %+v, want %q", want.of.Rejected, want.reason)
		}
	}
	why = nil
	s.refresh(t)
	if p := reason(); p.Source.Backend != "rdma" || len(p.Rejected) != 0 {
		t.Errorf("by %q, rejected %+v", p.Source.Backend, p.Rejected)
	}
}

// A flow that finds no room in XDP's tables is counted in hardware alone, as long as
// nothing that XDP publishes lies under it.
func TestAFlowWithoutAShadowIsCountedInHardwareAlone(t *testing.T) {
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
	w.under.full = func(f flow.Flow) error {
		if f.Name == "dns" {
			return errors.New("table is full")
		}
		return nil
	}
	s := newStacked(t, t.TempDir()+"/", w, false)
	defer s.e.Close()
	placed, err := s.e.AddFlows(t.Context(), udpFlow(t, "dns", "udp dport 53", 5))
	if err != nil {
		t.Fatal(err)
	}
	if p := placed[0]; p.Source.Backend != "rdma" || refusedBy(p, "xdp") != "table is full" {
		t.Errorf("counted by %s, rejected %v", p.Source.Backend, p.Rejected)
	}
	under := udpFlow(t, "all", "udp", 9)
	under.Backend = "xdp"
	if _, err := s.e.AddFlows(t.Context(), under); !errors.Is(err, dataplane.ErrUnplaced) {
		t.Errorf("a published flow under it: %v", err)
	}
	beside := udpFlow(t, "web", "tcp", 9)
	beside.Backend = "xdp"
	if _, err := s.e.AddFlows(t.Context(), beside); err != nil {
		t.Errorf("a published flow beside it: %v", err)
	}
	w.send(packetTo(53))
	if got := s.total(t, "dns"); got.Packets != 1 || len(s.e.flows) != 2 {
		t.Errorf("%d packets, %d flows", got.Packets, len(s.e.flows))
	}
}

// A process that is killed takes the device's counters with it. Where XDP counted beside
// all the time, its pinned counters have the total.
func TestTotalsGoOnOverAKillWithHardware(t *testing.T) {
	for _, audit := range []bool{false, true} {
		t.Run(fmt.Sprint("audit ", audit), func(t *testing.T) {
			dir := t.TempDir() + "/"
			w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
			s := newStacked(t, dir, w, audit)
			dns := udpFlow(t, "dns", "udp dport 53", 5)
			if _, err := s.e.AddFlows(t.Context(), dns); err != nil {
				t.Fatal(err)
			}
			want := uint64(0)
			for round := range uint64(3) {
				for range 10 {
					w.send(packetTo(53))
				}
				s.total(t, "dns")
				for range 4 { // not polled any more
					w.send(packetTo(53))
				}
				want += 10
				// As a kill leaves it: no last poll, the hook attached, the device's flows gone.
				s.e.plan.StopReading(s.e.flows["dns"].handle)
				if err := s.e.Close(); err != nil {
					t.Fatal(err)
				}
				w.over.lose()
				for range 3 {
					w.send(packetTo(53))
				}
				w.over = newFakeHardware(true)
				if audit {
					want += 7
				}
				s.cfg.Flows = []flow.Flow{dns}
				late := uint64(0)
				if round == 2 { // packets pass while hardware takes the total up
					late = 1
					w.over.during = func() { w.send(packetTo(53)) }
				}
				s.start(t)
				lab.Eventually(t, "a pause", func() bool { return !s.e.auditor.alignIdle() })
				if audit {
					want += late
				}
				got, disc := s.total(t, "dns"), s.e.flows["dns"].past.Discontinuities
				if wantDisc := map[bool]uint64{false: round + 1, true: late}[audit]; got.Packets != want || disc != wantDisc {
					t.Errorf("start %d: %d packets, %d discontinuities, want %d and %d", round, got.Packets, disc, want, wantDisc)
				}
			}
			s.e.Close()
		})
	}
}
