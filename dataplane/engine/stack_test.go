package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/linear"
	"github.com/flowtally/flowtally/internal/linear/gen"
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
	if s.e, err = New(context.Background(), s.cfg, Options{Backends: []Backend{s.over, s.under}}); err != nil {
		t.Fatal(err)
	}
	s.e.stop() // its goroutines: the test does what they would
	s.e.stopped.Wait()
	if s.events, err = s.e.Events(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// total is what the mirror shows after a poll.
func (s *stacked) total(t rapid.TB, name string) Pair {
	t.Helper()
	s.e.poller.once()
	c := s.e.flows[name]
	if c == nil {
		t.Fatalf("no flow %q", name)
	}
	v, err := s.e.writer.Last(c.handle)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{Packets: v.Packets, Bytes: v.Bytes}
}

// moves are the changes of sources since the last call, oldest first.
func (s *stacked) moves() (out []dataplane.Event) {
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
	if !s.e.refresh(context.Background()) {
		t.Fatal("a control call is under way")
	}
}

func (s *stacked) source(name string) string { return s.e.flows[name].source.Backend }

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

func packetTo(port uint16) linear.Packet {
	return linear.Packet{Frame: udpTo(port, 60), Interface: "v0"}
}

// A flow that only XDP can count displaces those below it that it overlaps, and
// they go back when it goes.
func TestAFlowDisplacesThoseBelowIt(t *testing.T) {
	w := &world{over: newOver(true), under: newUnder()}
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

// A device that goes takes packets with it: as many as are declared, or none with audit.
func TestWhatADeviceTakesWithItIsDeclared(t *testing.T) {
	for _, c := range []struct {
		name           string
		audit, beside  bool // XDP counts beside because of audit, or for another flow
		total          uint64
		lacks          dataplane.Uncounted
		discontinuties uint64
	}{
		{"nothing beside", false, false, 15, dataplane.Uncounted{Unknown: true}, 1},
		{"an XDP flow beside", false, true, 15, dataplane.Uncounted{Packets: 7, Bytes: 420}, 1},
		{"audit", true, false, 22, dataplane.Uncounted{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{over: newOver(true), under: newUnder()}
			s := newStacked(t, t.TempDir()+"/", w, c.audit)
			defer s.e.Close()
			if c.beside {
				f := udpFlow(t, "other", "tcp", 0)
				f.Backend = "xdp"
				if _, err := s.e.AddFlows(t.Context(), f); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "dns", "udp dport 53", 5)); err != nil {
				t.Fatal(err)
			}
			send := func(n int) {
				for range n {
					w.send(packetTo(53))
				}
			}
			send(10)
			if got := s.total(t, "dns"); got.Packets != 10 {
				t.Fatalf("counted %d, want 10", got.Packets)
			}
			w.over.lose()
			send(7) // nobody knows yet
			s.refresh(t)
			send(5)
			if got := s.total(t, "dns"); got.Packets != c.total {
				t.Errorf("counted %d, want %d", got.Packets, c.total)
			}
			moves := s.moves()
			if len(moves) != 1 || moves[0].Uncounted != c.lacks || moves[0].Object != "dns" {
				t.Errorf("moves %+v, want one that lacks %+v", moves, c.lacks)
			}
			if got := s.e.flows["dns"].past.Discontinuities; got != c.discontinuties {
				t.Errorf("%d discontinuities, want %d", got, c.discontinuties)
			}
			w.over.down = nil
			s.refresh(t)
			send(5)
			if got := s.total(t, "dns"); got.Packets != c.total+5 || s.source("dns") != "rdma" {
				t.Errorf("counted %d by %s after the return, want %d by rdma", got.Packets, s.source("dns"), c.total+5)
			}
			if got := s.e.flows["dns"].past.Discontinuities; got != c.discontinuties {
				t.Errorf("%d discontinuities after a return in which nothing passed, want %d", got, c.discontinuties)
			}
		})
	}
}

// A flow whose device is lost while XDP cannot take it over has no source, and is taken over as
// soon as XDP can.
func TestAFlowWithoutAnySourceIsTriedAgain(t *testing.T) {
	w := &world{over: newOver(true), under: newUnder()}
	s := newStacked(t, t.TempDir()+"/", w, false)
	defer s.e.Close()
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "dns", "udp dport 53", 5)); err != nil {
		t.Fatal(err)
	}
	w.send(packetTo(53))
	w.under.busy = errors.New("the hook is taken")
	w.over.lose()
	s.refresh(t)
	w.send(packetTo(53))
	if got := s.total(t, "dns"); got.Packets != 1 || s.e.flows["dns"].source != (dataplane.Source{}) || !s.e.tryAgain() {
		t.Errorf("%d packets by %+v, tried again: %v", got.Packets, s.e.flows["dns"].source, s.e.tryAgain())
	}
	w.under.busy = nil
	s.refresh(t)
	w.send(packetTo(53))
	if got := s.total(t, "dns"); got.Packets != 2 || s.source("dns") != "xdp" || s.e.tryAgain() {
		t.Errorf("%d packets by %s, tried again: %v", got.Packets, s.source("dns"), s.e.tryAgain())
	}
}

// A flow that finds no room in XDP's tables is counted in hardware alone, as long as
// nothing that XDP publishes lies under it.
func TestAFlowWithoutAShadow(t *testing.T) {
	w := &world{over: newOver(true), under: newUnder()}
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

// What passes while a flow goes back to hardware is made up for by audit, at the first quiet
// moment; what hardware does not see afterwards is said, and not hidden.
func TestAuditMakesUpForAReturnUnderTraffic(t *testing.T) {
	w := &world{over: newOver(true), under: newUnder()}
	s := newStacked(t, t.TempDir()+"/", w, true)
	defer s.e.Close()
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "dns", "udp dport 53", 5)); err != nil {
		t.Fatal(err)
	}
	send := func(n int) {
		for range n {
			w.send(packetTo(53))
		}
	}
	send(10)
	w.over.lose()
	send(7)
	s.refresh(t)
	w.over.down, w.over.during = nil, func() { send(4) }
	s.refresh(t)
	w.over.during = nil
	send(5)
	if got := s.total(t, "dns"); got.Packets != 22 || s.source("dns") != "rdma" {
		t.Errorf("counted %d by %s, want 22 (4 passed between the two) by rdma", got.Packets, s.source("dns"))
	}
	if moves := s.moves(); len(moves) != 2 || !moves[1].Uncounted.Unknown {
		t.Errorf("moves %+v", moves)
	}
	s.e.examine()
	s.e.examine()
	if got := s.total(t, "dns"); got.Packets != 26 {
		t.Errorf("counted %d after a quiet moment, want 26", got.Packets)
	}
	if moves := s.moves(); len(moves) != 1 || !strings.Contains(moves[0].Text, "4 packets") {
		t.Errorf("moves %+v, want one that says what was added", moves)
	}
	w.under.see(packetTo(53)) // hardware does not see this one
	s.e.examine()
	s.e.examine()
	conditions, err := s.e.Conditions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(conditions) != 1 || conditions[0].Code != "rdma-audit-differs" || conditions[0].Object != "dns" {
		t.Errorf("conditions %+v", conditions)
	}
	if got := s.total(t, "dns"); got.Packets != 26 || s.e.flows["dns"].past.Discontinuities != 1 {
		t.Errorf("counted %d, %d discontinuities", got.Packets, s.e.flows["dns"].past.Discontinuities)
	}
}

// A flow that only rdma may count waits for its device where it is.
func TestAnRDMAFlowWaitsForItsDevice(t *testing.T) {
	w := &world{over: newOver(true), under: newUnder()}
	s := newStacked(t, t.TempDir()+"/", w, false)
	defer s.e.Close()
	f := udpFlow(t, "dns", "udp dport 53", 5)
	f.Backend = "rdma"
	if _, err := s.e.AddFlows(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	w.send(packetTo(53))
	s.total(t, "dns")
	w.over.lose()
	s.refresh(t)
	w.send(packetTo(53))
	if got := s.total(t, "dns"); got.Packets != 1 || w.under.attached || s.e.flows["dns"].source.Device != "" {
		t.Errorf("without its device: %d packets, XDP attached %v, source %+v", got.Packets, w.under.attached, s.e.flows["dns"].source)
	}
	w.over.down = nil
	s.refresh(t)
	w.send(packetTo(53))
	c := s.e.flows["dns"]
	if got := s.total(t, "dns"); got.Packets != 2 || c.source.Device != "swnic0" || c.past.Discontinuities != 1 {
		t.Errorf("after the return: %d packets, source %+v, %d discontinuities", got.Packets, c.source, c.past.Discontinuities)
	}
	// What takes its packets in XDP has no place while nothing else may count it.
	over := udpFlow(t, "near", "ipv4 udp dport 53", 1)
	over.Backend = "xdp"
	if _, err := s.e.AddFlows(t.Context(), over); !errors.Is(err, dataplane.ErrUnplaced) {
		t.Errorf("adding an xdp flow above: %v", err)
	}
	if got := s.total(t, "dns"); got.Packets != 2 || s.source("dns") != "rdma" || len(s.e.flows) != 1 {
		t.Errorf("after a refusal: %d packets by %s, %d flows", got.Packets, s.source("dns"), len(s.e.flows))
	}
}

// A process that is killed takes the device's counters with it. Where XDP counted beside
// all the time its counters, which are pinned, say what the total is.
func TestTotalsGoOnOverAKillWithHardware(t *testing.T) {
	for _, audit := range []bool{false, true} {
		t.Run(fmt.Sprint("audit ", audit), func(t *testing.T) {
			dir := t.TempDir() + "/"
			w := &world{over: newOver(true), under: newUnder()}
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
				s.e.poller.plan.hold(s.e.flows["dns"].handle)
				if err := s.e.Close(); err != nil {
					t.Fatal(err)
				}
				w.over.lose()
				for range 3 {
					w.send(packetTo(53))
				}
				w.over = newOver(true)
				if audit {
					want += 7
				}
				s.cfg.Flows = []flow.Flow{dns}
				s.start(t)
				got, disc := s.total(t, "dns"), s.e.flows["dns"].past.Discontinuities
				if wantDisc := map[bool]uint64{false: round + 1}[audit]; got.Packets != want || disc != wantDisc {
					t.Errorf("start %d: %d packets, %d discontinuities, want %d and %d", round, got.Packets, disc, want, wantDisc)
				}
			}
			s.e.Close()
		})
	}
}

// The model: flows come and go, devices are lost and return, packets pass, and at
// every step each total is what the linear matcher named since the flow was added, less
// what was declared; nothing is ever counted twice.
func TestEachPacketIsCountedOnceByWhateverCountsIt(t *testing.T) {
	moves, inOver, inUnder := 0, 0, 0
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "flows"), rapid.Uint64().Draw(t, "packets")))
		audit := rapid.Bool().Draw(t, "audit")
		w := &world{over: newOver(rapid.Bool().Draw(t, "exclusive")), under: newUnder()}
		w.over.cannot = func(f flow.Flow) error {
			if len(f.Match.String())%6 == 0 {
				return errors.New("inexpressible")
			}
			return nil
		}
		w.over.refuse = func(f flow.Flow) error {
			if len(f.Match.String())%11 == 0 {
				return errors.New("no memory")
			}
			return nil
		}
		w.under.full = nil
		runs++
		s := newStacked(t, filepath.Join(dir, fmt.Sprint(runs)+"-"), w, audit)
		defer s.e.Close()
		pool := gen.Flows(rng, 14)
		var live []flow.Flow // in the order of addition
		truth, declared := make(map[string]Pair), make(map[string]Pair)
		unknown := make(map[string]bool)
		for range rapid.IntRange(8, 24).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1, 2:
				f := pool[rng.IntN(len(pool))]
				f.Direction, f.Action = flow.Ingress, flow.Count
				f.Backend = []string{"", "", "", "auto", "xdp"}[rng.IntN(5)]
				if _, there := truth[f.Name]; there {
					continue
				}
				if _, err := s.e.AddFlows(context.Background(), f); err != nil {
					t.Fatalf("adding %s: %v", f.Match, err)
				}
				live = append(live, f)
				truth[f.Name] = Pair{}
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
			oracle := linear.New(live)
			for range 20 {
				p := linear.Packet{Frame: gen.Packet(rng, pool), Interface: "v0"}
				w.send(p)
				if i, ok := oracle.Match(p); ok {
					truth[live[i].Name] = add(truth[live[i].Name], Pair{Packets: 1, Bytes: uint64(len(p.Frame))})
				}
			}
			s.e.poller.once()
			s.refresh(t)
			s.e.poller.once()
			for _, ev := range s.moves() {
				moves++
				unknown[ev.Object] = unknown[ev.Object] || ev.Uncounted.Unknown
				declared[ev.Object] = add(declared[ev.Object], Pair{Packets: ev.Uncounted.Packets, Bytes: ev.Uncounted.Bytes})
			}
			for _, name := range slices.Sorted(maps.Keys(truth)) {
				got, want := add(s.total(t, name), declared[name]), truth[name]
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
	if moves < 100 || inOver < 100 || inUnder < 100 {
		t.Error("the test looks at little")
	}
}
