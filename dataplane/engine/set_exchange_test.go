package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// exchanging is an instance with a device and XDP that counts flows.
func exchanging(t *testing.T, flows ...flow.Flow) *stacked {
	t.Helper()
	s := newStacked(t, t.TempDir()+"/", &world{over: newFakeHardware(true), under: newFakeSoftware()}, false)
	t.Cleanup(func() { s.e.Close() })
	if _, err := s.e.AddFlows(t.Context(), flows...); err != nil {
		t.Fatal(err)
	}
	return s
}

// countBy counts by these backends alone from now on.
func (s *stacked) countBy(all ...backend.Backend) {
	s.e.ctl.Lock()
	defer s.e.ctl.Unlock()
	s.e.backends, s.e.mover.stack = all, nil
	s.e.placement.choices.all = s.e.backends
	clear(s.e.placement.choices.byName)
}

// sendAmid sends a packet to a port at each call of software from now on, and counts them.
func (s *stacked) sendAmid(port uint16) (sent *int) {
	sent = new(int)
	called := s.under.called
	s.under.called = func() {
		called()
		s.send(packetTo(port))
		*sent++
	}
	return sent
}

// degraded makes changes go on without refused flows, if they are given the configuration that it returns.
func (s *stacked) degraded() dataplane.Config {
	s.e.cfg.Start, s.cfg.Start = dataplane.StartDegraded, dataplane.StartDegraded
	return s.cfg
}

func (s *stacked) discontinuities(name string) uint64 { return s.e.flows[name].past.Discontinuities }

// refuses refuses the flow to port 4444, and sends a packet to a port before that.
func (s *stacked) refuses(port uint16) {
	s.over.refuse = func(f flow.Flow) error {
		s.send(packetTo(port))
		return errorTo(f, 4444)
	}
}

func by(f flow.Flow, kind flow.Backend) flow.Flow {
	f.Backend = kind
	return f
}

func at(f flow.Flow, priority uint16) flow.Flow {
	f.Priority = priority
	return f
}

func TestRefusedChangeDeclaresWhatAChangedFlowHasLostOrWon(t *testing.T) {
	dns, wide := by(udpFlow(t, "dns", "udp dport 53", 1), flow.XDP), by(udpFlow(t, "wide", "udp dport 53-69", 5), flow.XDP)
	between := by(udpFlow(t, "between", "udp dport 53", 3), flow.XDP)
	refused := by(udpFlow(t, "refused", "udp dport 4444", 9), flow.RDMA)
	for _, c := range []struct {
		name     string
		before   []flow.Flow
		after    []flow.Flow
		declares []string
		keeps    []string
	}{
		{"it falls behind another", []flow.Flow{dns, wide}, []flow.Flow{at(dns, 9), wide, refused}, []string{"dns", "wide"}, nil},
		{"it falls behind a flow that comes", []flow.Flow{dns}, []flow.Flow{at(dns, 5), between, refused}, []string{"dns"}, nil},
		{"it passes none", []flow.Flow{dns, wide}, []flow.Flow{at(dns, 2), wide, refused}, nil, []string{"dns", "wide"}},
		{"its action changes", []flow.Flow{dns, wide}, []flow.Flow{dropping(dns), wide, refused}, nil, []string{"dns", "wide"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := exchanging(t, c.before...)
			s.refuses(53)
			if _, err := s.e.SetFlows(t.Context(), c.after, dataplane.SetOptions{}); !errors.Is(err, dataplane.ErrUnplaced) {
				t.Fatal(err)
			}
			for _, name := range c.declares {
				if s.discontinuities(name) == 0 {
					t.Errorf("%s: %+v without a discontinuity", name, s.total(t, name))
				}
			}
			for _, name := range c.keeps {
				if n := s.discontinuities(name); n > 0 {
					t.Errorf("%s: %d discontinuities without a loss", name, n)
				}
			}
		})
	}
}

func dropping(f flow.Flow) flow.Flow {
	f.Action = flow.Drop
	return f
}

func TestRefusedAddDeclaresWhatItsFlowsHaveCounted(t *testing.T) {
	s := exchanging(t)
	s.countBy(s.under)
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "wide", "udp dport 53-69", 5)); err != nil {
		t.Fatal(err)
	}
	s.under.full = func(flow.Flow) error { return fmt.Errorf("%w: %w", dataplane.ErrFull, backend.ErrUndone) }
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "dns", "udp dport 53", 1)); !errors.Is(err, dataplane.ErrFull) {
		t.Fatal(err)
	}
	if n := s.discontinuities("wide"); n != 1 {
		t.Errorf("%d discontinuities, want 1", n)
	}
}

// A flow that only hardware may count loses against a flow that comes, which hardware counts only behind the change.
func TestAFlowThatOnlyHardwareCountsOutlastsAChange(t *testing.T) {
	x, o := udpFlow(t, "x", "udp dport 53", 1), by(udpFlow(t, "o", "udp dport 60-69", 9), flow.RDMA)
	s := exchanging(t, x, o)
	if _, err := s.e.SetFlows(t.Context(), []flow.Flow{at(x, 2), o, udpFlow(t, "c", "udp dport 50-62", 5)}, dataplane.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x", "o", "c"} {
		if s.source(name) != "rdma" {
			t.Errorf("%s is counted by %s", name, s.source(name))
		}
	}
}

// A removed flow waits for its device. Its rules in XDP must not win while the flow before it changes its rank.
func TestARemovedFlowThatWaitsWinsNoPacketAmidAChange(t *testing.T) {
	x, r, b := udpFlow(t, "x", "udp dport 53", 1), by(udpFlow(t, "r", "udp dport 53", 2), flow.RDMA), udpFlow(t, "b", "udp dport 53-69", 5)
	s := exchanging(t, x, r, b)
	s.over.lose()
	s.refresh(t)
	sent := s.sendAmid(53)
	if _, err := s.e.SetFlows(t.Context(), []flow.Flow{at(x, 9), b}, dataplane.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := s.total(t, "x").Packets + s.total(t, "b").Packets; int(got) != *sent {
		t.Errorf("x and b have %d packets of %d", got, *sent)
	}
}

// A degraded change goes on without a flow that hardware refuses. Until it has found that flow, no other one counts in hardware
// that must not yet.
func TestADegradedChangeCountsNoPacketTwice(t *testing.T) {
	x, o := udpFlow(t, "x", "udp dport 80", 1), by(udpFlow(t, "o", "udp dport 7", 0), flow.XDP)
	s := exchanging(t, x, o)
	sent := 0
	s.over.refuse = func(f flow.Flow) error {
		if errorTo(f, 4444) != nil {
			s.send(packetTo(53))
			sent++
		}
		return errorTo(f, 4444)
	}
	cfg := s.degraded()
	x.Match = match(t, "udp dport 53")
	n, refused := udpFlow(t, "n", "udp dport 53-69", 5), by(udpFlow(t, "refused", "udp dport 4444", 1), flow.RDMA)
	if _, err := s.e.SetFlows(t.Context(), []flow.Flow{o, x, n, refused}, dataplane.SetOptions{Config: &cfg}); err != nil {
		t.Fatal(err)
	}
	if got := s.total(t, "x").Packets + s.total(t, "n").Packets; sent == 0 || int(got) != sent {
		t.Errorf("x and n have %d packets of %d", got, sent)
	}
}

// Software refuses a flow that comes with a change of another one. A degraded change goes on without it, hardware counts it
// without a shadow, and otherwise the error says that it is not placed.
func TestAFlowThatSoftwareRefusesInAChangeGoesToHardware(t *testing.T) {
	x := udpFlow(t, "x", "udp dport 53", 1)
	d := udpFlow(t, "d", "udp dport 4444", 3)
	invalid := func(f flow.Flow) error {
		if errorTo(f, 4444) != nil {
			return dataplane.ErrInvalid
		}
		return nil
	}

	s := exchanging(t)
	s.countBy(s.under)
	if _, err := s.e.AddFlows(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	s.under.full = invalid
	if _, err := s.e.SetFlows(t.Context(), []flow.Flow{at(x, 2), d}, dataplane.SetOptions{}); !errors.Is(err, dataplane.ErrUnplaced) {
		t.Errorf("strict: %v", err)
	}
	cfg := s.degraded()
	if _, err := s.e.SetFlows(t.Context(), []flow.Flow{at(x, 2), d}, dataplane.SetOptions{Config: &cfg}); err != nil || s.e.refused.flows["d"] == nil {
		t.Errorf("degraded: %v, refused are %v", err, s.e.refused.flows)
	}

	s = exchanging(t, x)
	s.under.full = invalid
	if _, err := s.e.SetFlows(t.Context(), []flow.Flow{at(x, 2), d}, dataplane.SetOptions{}); err != nil || s.source("d") != "rdma" {
		t.Errorf("hardware counts it: %v", err)
	}
}

// fullSim is a second backend, which refuses each change.
type fullSim struct{ *fakeSoftware }

func (fullSim) Name() string { return "sim" }

func (fullSim) Alter(context.Context, backend.Change) ([]backend.Installed, func(bool) error, error) {
	return nil, nil, dataplane.ErrFull
}

func TestAChangeThatTheSecondBackendRefusesIsUndone(t *testing.T) {
	s := exchanging(t)
	s.countBy(s.under, fullSim{newFakeSoftware()})
	x, y := by(udpFlow(t, "x", "udp dport 53", 1), "xdp"), by(udpFlow(t, "y", "udp dport 60-69", 9), "sim")
	if _, err := s.e.AddFlows(t.Context(), x, y); err != nil {
		t.Fatal(err)
	}
	if _, err := s.e.SetFlows(t.Context(), []flow.Flow{at(x, 2), at(y, 3)}, dataplane.SetOptions{}); !errors.Is(err, dataplane.ErrFull) {
		t.Fatal(err)
	}
	if got := s.under.flows["x"].Priority; got != 1 {
		t.Errorf("the priority in XDP is %d, want 1", got)
	}
}

// An undo fails. No flow is kept out of hardware for ever.
func TestAnUndoThatFailsKeepsNoFlowOutOfHardware(t *testing.T) {
	web, dns := by(udpFlow(t, "web", "udp dport 80", 0), flow.RDMA), udpFlow(t, "dns", "udp dport 53", 0)
	s := exchanging(t, web, dns)
	s.over.refuse = func(f flow.Flow) error {
		if errorTo(f, 4444) != nil {
			clear(s.under.left)
			s.under.full = func(flow.Flow) error { return dataplane.ErrFull }
		}
		return errorTo(f, 4444)
	}
	web.Match, dns.Match = match(t, "udp dport 4444"), match(t, "udp dport 54")
	if _, err := s.e.SetFlows(t.Context(), []flow.Flow{web, dns}, dataplane.SetOptions{}); !errors.Is(err, dataplane.ErrFull) {
		t.Fatal(err)
	}
	s.under.full, s.over.refuse = nil, nil
	s.refresh(t)
	for _, name := range []string{"web", "dns"} {
		if c := s.e.flows[name]; s.e.arranger.out[c] != nil || c.Backend == flow.RDMA && c.allowsSoftware {
			t.Errorf("%s is kept out of hardware", name)
		}
	}
}

// XDP is to count a flow that wins over one in hardware. Hardware lets that one go first: each packet meanwhile is in one total.
func TestAFlowThatDisplacesAnotherCountsFromItsFirstPacket(t *testing.T) {
	h, b := udpFlow(t, "h", "udp dport 53", 5), by(udpFlow(t, "b", "udp dport 50-69", 9), flow.XDP)
	for name, port := range map[string]uint16{"of the flow in hardware": 53, "of a flow in XDP": 60} {
		t.Run(name, func(t *testing.T) {
			s := exchanging(t, h, b)
			sent := 0
			called := s.over.called
			s.over.called = func() {
				called()
				s.send(packetTo(port))
				sent++
			}
			if _, err := s.e.AddFlows(t.Context(), by(udpFlow(t, "c", "udp dport 50-69", 1), flow.XDP)); err != nil {
				t.Fatal(err)
			}
			got := s.total(t, "h").Packets + s.total(t, "b").Packets + s.total(t, "c").Packets
			if sent == 0 || int(got) != sent {
				t.Errorf("%d packets of %d are counted", got, sent)
			}
		})
	}
}
