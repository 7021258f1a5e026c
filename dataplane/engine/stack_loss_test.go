package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// A device that goes takes packets with it, unless XDP has counted beside it. They are declared.
func TestWhatADeviceTakesWithItIsDeclared(t *testing.T) {
	for _, c := range []struct {
		name            string
		audit, beside   bool // XDP counts beside because of audit, or for another flow
		total           uint64
		lacks           dataplane.Uncounted
		discontinuities uint64
	}{
		{"nothing beside", false, false, 15, dataplane.Uncounted{Unknown: true}, 1},
		{"an XDP flow beside", false, true, 22, dataplane.Uncounted{}, 0},
		{"audit", true, false, 22, dataplane.Uncounted{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
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
			send(7) // the loss is not known yet
			s.refresh(t)
			send(5)
			if got := s.total(t, "dns"); got.Packets != c.total {
				t.Errorf("counted %d, want %d", got.Packets, c.total)
			}
			moves := s.moves()
			if len(moves) != 1 || moves[0].Uncounted != c.lacks || moves[0].Object != "dns" {
				t.Errorf("moves %+v, want one that lacks %+v", moves, c.lacks)
			}
			if got := s.e.flows["dns"].past.Discontinuities; got != c.discontinuities {
				t.Errorf("%d discontinuities, want %d", got, c.discontinuities)
			}
			w.over.down = nil
			s.refresh(t)
			send(5)
			if got := s.total(t, "dns"); got.Packets != c.total+5 || s.source("dns") != "rdma" {
				t.Errorf("counted %d by %s after the return, want %d by rdma", got.Packets, s.source("dns"), c.total+5)
			}
			if got := s.e.flows["dns"].past.Discontinuities; got != c.discontinuities {
				t.Errorf("%d discontinuities after a return in which nothing passed, want %d", got, c.discontinuities)
			}
		})
	}
}

// A flow waits for its device, while XDP sees every packet of it for another flow's sake. What passes while the device begins to
// count is declared.
func TestPacketsThatPassWhileAWaitingFlowReturnsAreDeclared(t *testing.T) {
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
	s := newStacked(t, t.TempDir()+"/", w, false)
	defer s.e.Close()
	other, dns := udpFlow(t, "other", "tcp", 0), udpFlow(t, "dns", "udp dport 53", 5)
	other.Backend, dns.Backend = "xdp", "rdma"
	if _, err := s.e.AddFlows(t.Context(), other, dns); err != nil {
		t.Fatal(err)
	}
	send := func(n int) {
		for range n {
			w.send(packetTo(53))
		}
	}
	send(10)
	w.over.lose()
	s.refresh(t)
	send(7)
	was := s.e.flows["dns"].past.Discontinuities

	w.over.down, w.over.during = nil, func() { send(3) }
	s.refresh(t)
	w.over.during = nil
	send(5)
	if got := s.total(t, "dns"); got.Packets != 22 || s.source("dns") != "rdma" {
		t.Errorf("counted %d by %s, want 22 of 25 by rdma", got.Packets, s.source("dns"))
	}
	if n := s.e.flows["dns"].past.Discontinuities; n != was+1 {
		t.Errorf("%d discontinuities, want %d", n, was+1)
	}
}

// The hook of a flow's shadow is lost, and the flow's device returns before the hook, or together with it.
func TestAReturnDeclaresALostHook(t *testing.T) {
	for name, c := range map[string]struct {
		lose, meanwhile func(*fakeSoftware)
	}{
		"before the hook": {(*fakeSoftware).lose, func(*fakeSoftware) {}},
		"with the hook":   {(*fakeSoftware).lose, (*fakeSoftware).take},
		"of several":      {(*fakeSoftware).loseOne, func(*fakeSoftware) {}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
			s := newStacked(t, t.TempDir()+"/", w, false)
			defer s.e.Close()
			if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "dns", "udp dport 53", 5)); err != nil {
				t.Fatal(err)
			}
			w.over.lose()
			s.refresh(t)
			c.lose(w.under)
			s.showSources()
			for range 7 {
				w.send(packetTo(53))
			}
			was := s.e.flows["dns"].past.Discontinuities
			s.moves()
			c.meanwhile(w.under)
			w.over.down = nil
			s.refresh(t)
			moves := s.moves()
			if len(moves) != 1 || !moves[0].Uncounted.Unknown || s.source("dns") != "rdma" {
				t.Errorf("moves %+v to %s, want one to rdma that lacks an unknown number", moves, s.source("dns"))
			}
			if n := s.e.flows["dns"].past.Discontinuities; n != was+1 {
				t.Errorf("%d discontinuities, want %d", n, was+1)
			}
		})
	}
}

// A hook of a flow's shadow is lost, and the process ends, before the flow's device returns: the next one declares that.
func TestTheNextProcessDeclaresALostHook(t *testing.T) {
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
	s := newStacked(t, t.TempDir()+"/", w, false)
	s.cfg.Flows = []flow.Flow{udpFlow(t, "dns", "udp dport 53", 5)}
	if _, err := s.e.AddFlows(t.Context(), s.cfg.Flows...); err != nil {
		t.Fatal(err)
	}
	w.over.lose()
	s.refresh(t)
	w.under.loseOne()
	s.showSources()
	was := s.e.flows["dns"].past.Discontinuities
	if err := s.e.Close(); err != nil {
		t.Fatal(err)
	}
	w.over = newFakeHardware(true)
	s.start(t)
	defer s.e.Close()
	if n := s.e.flows["dns"].past.Discontinuities; n != was+1 || s.source("dns") != "rdma" {
		t.Errorf("%d discontinuities by %s, want %d by rdma", n, s.source("dns"), was+1)
	}
}

// The device of a flow that only hardware may count is lost. Meanwhile the hook of the flow's shadow, which counts beside, is
// lost, and the process ends: the next one takes no total from the shadow without a discontinuity.
func TestWhatTheShadowOfASuspendedFlowMissesIsDeclared(t *testing.T) {
	for name, lose := range map[string]func(*fakeSoftware){
		"no hook": nil,
		"a hook, and it is taken": func(u *fakeSoftware) {
			u.lose()
			u.take()
		},
		"one of two hooks":           (*fakeSoftware).loseOne,
		"the only hook, for a while": (*fakeSoftware).lose,
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
			s := newStacked(t, t.TempDir()+"/", w, true)
			s.cfg.Flows = []flow.Flow{udpFlow(t, "dns", "udp dport 53", 5)}
			s.cfg.Flows[0].Backend = flow.RDMA
			if _, err := s.e.AddFlows(t.Context(), s.cfg.Flows...); err != nil {
				t.Fatal(err)
			}
			send := func() {
				for range 10 {
					w.send(packetTo(53))
				}
			}
			send()
			s.total(t, "dns")
			w.over.lose()
			s.refresh(t)
			send()
			want, declared := uint64(30), uint64(0)
			if lose != nil {
				lose(w.under)
				want, declared = 20, 1 // the total goes on from the value of hardware
			}
			s.showSources()
			s.close(t)
			w.over = newFakeHardware(true)
			if w.under.open {
				w.under.take()
			}
			send() // the shadow counts on between the processes
			s.start(t)
			defer s.close(t)
			if declared > 0 {
				send()
			}
			if got, n := s.total(t, "dns").Packets, s.e.flows["dns"].past.Discontinuities; got != want || n != declared {
				t.Errorf("counted %d with %d discontinuities, want %d with %d", got, n, want, declared)
			}
		})
	}
}

// A flow whose device is lost while XDP cannot take it over has no source, and is taken over as
// soon as XDP can.
func TestAFlowWithoutAnySourceIsTriedAgain(t *testing.T) {
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
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
	if got := s.total(t, "dns"); got.Packets != 1 || !s.e.flows["dns"].source.IsZero() || !s.e.watcher.hasWaiting() {
		t.Errorf("%d packets by %+v, tried again: %v", got.Packets, s.e.flows["dns"].source, s.e.watcher.hasWaiting())
	}
	w.under.busy = nil
	s.refresh(t)
	w.send(packetTo(53))
	if got := s.total(t, "dns"); got.Packets != 2 || s.source("dns") != "xdp" || s.e.watcher.hasWaiting() {
		t.Errorf("%d packets by %s, tried again: %v", got.Packets, s.source("dns"), s.e.watcher.hasWaiting())
	}
}

// Packets that pass while a flow goes back to hardware are added by the audit in the first pause of the
// flow. Packets that hardware misses afterwards raise a condition.
func TestAuditMakesUpForAReturnUnderTraffic(t *testing.T) {
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
	s := newStacked(t, t.TempDir()+"/", w, true)
	defer s.e.Close()
	send := func(n int) {
		for range n {
			w.send(packetTo(53))
		}
	}
	w.over.during = func() { send(2) }
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "dns", "udp dport 53", 5)); err != nil {
		t.Fatal(err)
	}
	w.over.during = nil
	lab.Eventually(t, "a pause", func() bool { return !s.e.auditor.alignIdle() })
	send(8)
	if got := s.total(t, "dns"); got.Packets != 10 {
		t.Errorf("counted %d, want 10: 2 passed between the two", got.Packets)
	}
	s.moves()
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
	lab.Eventually(t, "a total with all packets, after a pause", func() bool {
		s.look()
		return s.total(t, "dns").Packets == 26
	})
	if moves := s.moves(); len(moves) != 1 || !strings.Contains(moves[0].Text, "4 packets") {
		t.Errorf("moves %+v, want one that says what was added", moves)
	}
	w.under.see(packetTo(53)) // hardware does not see this one
	var conditions []dataplane.Condition
	lab.Eventually(t, "a condition", func() bool {
		s.look()
		var err error
		if conditions, err = s.e.Conditions(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(conditions) > 0
	})
	if len(conditions) != 1 || conditions[0].Code != "rdma-audit-differs" || conditions[0].Object != "dns" {
		t.Errorf("conditions %+v", conditions)
	}
	if got := s.total(t, "dns"); got.Packets != 26 || s.e.flows["dns"].past.Discontinuities != 1 {
		t.Errorf("counted %d, %d discontinuities", got.Packets, s.e.flows["dns"].past.Discontinuities)
	}

	lab.Step(t, conditions[0].Fix, "set the flow's backend to xdp")
	software := s.e.flows["dns"].Flow
	software.Backend = flow.XDP
	if _, err := s.e.SetFlows(t.Context(), []flow.Flow{software}, dataplane.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	s.look()
	conditions, err := s.e.Conditions(t.Context())
	if err != nil || len(conditions) != 0 {
		t.Errorf("conditions %+v, %v after the fix", conditions, err)
	}
}

// A flow that only rdma may count waits for its device where it is.
func TestAnRDMAFlowWaitsForItsDevice(t *testing.T) {
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
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
	if got := s.total(t, "dns"); got.Packets != 1 || w.under.attached || s.e.flows["dns"].source.DeviceNames() != "" {
		t.Errorf("without its device: %d packets, XDP attached %v, source %+v", got.Packets, w.under.attached, s.e.flows["dns"].source)
	}
	w.over.down = nil
	s.refresh(t)
	w.send(packetTo(53))
	c := s.e.flows["dns"]
	if got := s.total(t, "dns"); got.Packets != 2 || c.source.DeviceNames() != "swnic0" || c.past.Discontinuities != 1 {
		t.Errorf("after the return: %d packets, source %+v, %d discontinuities", got.Packets, c.source, c.past.Discontinuities)
	}
	// A flow that takes its packets in XDP has no place while only hardware may count the other.
	over := udpFlow(t, "near", "ipv4 udp dport 53", 1)
	over.Backend = "xdp"
	if _, err := s.e.AddFlows(t.Context(), over); !errors.Is(err, dataplane.ErrUnplaced) {
		t.Errorf("adding an xdp flow above: %v", err)
	}
	if got := s.total(t, "dns"); got.Packets != 2 || s.source("dns") != "rdma" || len(s.e.flows) != 1 {
		t.Errorf("after a refusal: %d packets by %s, %d flows", got.Packets, s.source("dns"), len(s.e.flows))
	}
}

// If XDP has counted less than hardware, XDP has missed packets. The total does not fall to XDP's count, with
// audit or without, and the number of missing packets is unknown.
func TestATotalDoesNotFallToAShadowThatSawLess(t *testing.T) {
	for _, audit := range []bool{false, true} {
		t.Run(fmt.Sprintf("audit %t", audit), func(t *testing.T) {
			w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
			s := newStacked(t, t.TempDir()+"/", w, audit)
			defer s.e.Close()
			beside := udpFlow(t, "other", "tcp", 0) // holds the hook
			beside.Backend = "xdp"
			if _, err := s.e.AddFlows(t.Context(), beside, udpFlow(t, "dns", "udp dport 53", 5)); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				w.send(packetTo(53))
			}
			for range 5 {
				w.over.see(packetTo(53)) // and XDP does not
			}
			if got := s.total(t, "dns"); got.Packets != 15 || s.source("dns") != "rdma" {
				t.Fatalf("counted %d by %s, want 15 by rdma", got.Packets, s.source("dns"))
			}
			s.moves()
			w.over.lose()
			s.refresh(t)
			w.send(packetTo(53))
			if got := s.total(t, "dns"); got.Packets != 16 || s.source("dns") != "xdp" {
				t.Errorf("counted %d by %s, want 16 by xdp", got.Packets, s.source("dns"))
			}
			if moves := s.moves(); len(moves) != 1 || moves[0].Uncounted != (dataplane.Uncounted{Unknown: true}) {
				t.Errorf("moves %+v, want one that lacks an unknown number", moves)
			}
			if n := s.e.flows["dns"].past.Discontinuities; n != 1 {
				t.Errorf("%d discontinuities, want 1", n)
			}
		})
	}
}

// A flow that only hardware may publish has a shadow that has counted less than hardware. When the flow's device
// returns, its total goes on from the value that it showed before.
func TestAStrandedTotalDoesNotFallAtTheReturn(t *testing.T) {
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
	s := newStacked(t, t.TempDir()+"/", w, true)
	defer s.e.Close()
	f := udpFlow(t, "dns", "udp dport 53", 5)
	f.Backend = "rdma"
	if _, err := s.e.AddFlows(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		w.over.see(packetTo(53)) // XDP does not
	}
	s.total(t, "dns")
	w.over.lose()
	s.refresh(t)
	w.over.down = nil
	s.refresh(t)
	w.send(packetTo(53))
	if got := s.total(t, "dns"); got.Packets != 6 {
		t.Errorf("counted %d, want 6", got.Packets)
	}
}
