package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/control"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// goesOn checks that the total of a flow is want, with a discontinuity: its slot is another one.
func (s *stacked) goesOn(t *testing.T, name string, want uint64) {
	t.Helper()
	if got := s.total(t, name); got.Packets != want || got.Bytes != 60*want {
		t.Errorf("%s: %+v, want %d packets", name, got, want)
	}
	if n := s.e.flows[name].past.Discontinuities; n == 0 {
		t.Errorf("%s goes on in another slot without a discontinuity", name)
	}
}

// kill ends the instance, and leaves the mirror as it was before.
func (s *stacked) kill(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(s.cfg.Mirror.Path)
	if err != nil {
		t.Fatal(err)
	}
	s.close(t)
	if err := os.WriteFile(s.cfg.Mirror.Path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *stacked) close(t *testing.T) {
	t.Helper()
	s.e.commit() // a test that calls a part of the engine does not hold ctl
	s.checkInForce(t)
	if err := s.e.Close(); err != nil {
		t.Fatal(err)
	}
}

// again starts the instance over a new world, as after a restart of the host.
func (s *stacked) again(t *testing.T) {
	t.Helper()
	s.world = &world{over: newFakeHardware(true), under: newFakeSoftware()}
}

// counting starts an instance whose flows a and b have counted 10 packets each, and ends it. The next one starts degraded.
func counting(t *testing.T) *stacked {
	t.Helper()
	s := &stacked{cfg: dataplane.Config{
		Backend: "auto", Interfaces: []dataplane.Interface{{Name: "v0"}}, Start: dataplane.StartDegraded,
		Flows:  []flow.Flow{udpFlow(t, "a", "udp dport 1", 1), udpFlow(t, "b", "udp dport 2", 2)},
		Mirror: dataplane.MirrorConfig{Path: t.TempDir() + "/t.mirror", Counters: 64, History: -1},
		Poll:   dataplane.PollConfig{Period: time.Hour},
	}}
	s.again(t)
	s.start(t)
	s.pass(10)
	for _, name := range []string{"a", "b"} {
		if got := s.total(t, name); got.Packets != 10 {
			t.Fatalf("%s: %+v", name, got)
		}
	}
	s.close(t)
	s.again(t)
	return s
}

// pass sends n packets to each flow.
func (s *stacked) pass(n int) {
	for range n {
		s.send(packetTo(1))
		s.send(packetTo(2))
	}
}

// errorTo returns an error for a flow of packets to a port.
func errorTo(f flow.Flow, port uint16) error {
	if f.Match.UDP.Dst.Value == port {
		return errors.New("no room")
	}
	return nil
}

func (s *stacked) cutMirror(t *testing.T) {
	t.Helper()
	if err := os.Truncate(s.cfg.Mirror.Path, 0); err != nil {
		t.Error(err)
	}
}

// refuseB has no backend take a flow of b's match, or of any but a's.
func (s *stacked) refuseB() {
	refuse := func(f flow.Flow) error {
		if f.Match.UDP.Dst.Value != 1 {
			return errors.New("no room")
		}
		return nil
	}
	s.over.cannot, s.under.full = refuse, refuse
}

func (s *stacked) allow() { s.over.cannot, s.under.full, s.e.refused.again = nil, nil, true }

// A degraded start finds no room for a flow in the mirror, and tries the others again, which have their entries by then. Their
// totals go on.
func TestTotalsGoOnWhereADegradedStartTriesFlowsAgain(t *testing.T) {
	for _, where := range []string{"hardware", "software"} {
		t.Run(where, func(t *testing.T) {
			s := counting(t)
			if where == "software" {
				s.over.cannot = func(flow.Flow) error { return errors.New("no spec looks at it") }
			}
			s.cfg.Flows, s.cfg.Mirror.Counters = append(s.cfg.Flows, udpFlow(t, "c", "udp dport 3", 3)), 2
			s.start(t)
			defer s.close(t)
			if s.e.refused.flows["c"] == nil || len(s.e.flows) != 2 {
				t.Fatalf("counts %v, refuses %v", s.e.flows, s.e.refused.flows)
			}
			s.pass(5)
			s.goesOn(t, "a", 15)
			s.goesOn(t, "b", 15)
			if a, b := s.e.flows["a"].past.Discontinuities, s.e.flows["b"].past.Discontinuities; a != 1 || b != 1 {
				t.Errorf("%d and %d discontinuities of one restart", a, b)
			}
		})
	}
}

// A degraded start goes on without a flow that was counted before, under this or another name. Its total goes on when it is
// counted again, also after a kill or an orderly end, after a mirror that was made anew, and after a try that failed late.
func TestTheTotalOfARefusedFlowGoesOn(t *testing.T) {
	for what, between := range map[string]func(*testing.T, *stacked){
		"retry": func(*testing.T, *stacked) {},
		"kill":  func(t *testing.T, s *stacked) { s.kill(t); s.again(t); s.refuseB(); s.start(t) },
		"end":   func(t *testing.T, s *stacked) { s.close(t); s.again(t); s.refuseB(); s.start(t) },
		"remade mirror": func(t *testing.T, s *stacked) {
			if err := os.Remove(s.cfg.Mirror.Path); err != nil {
				t.Fatal(err)
			}
			s.e.catalogue.Repair()
		},
		"a remade mirror and a kill": func(t *testing.T, s *stacked) {
			if err := os.Remove(s.cfg.Mirror.Path); err != nil {
				t.Fatal(err)
			}
			s.e.catalogue.Repair()
			s.e.poller.Poll()
			s.kill(t)
			s.again(t)
			s.start(t)
		},
		"a late failure": func(t *testing.T, s *stacked) {
			s.allow()
			s.addTooLate(t, s.cfg.Flows[1].Name)
			s.refuseB()
		},
		"a late failure, and a mirror cut short": func(t *testing.T, s *stacked) {
			ctx, cancel := context.WithCancel(t.Context())
			s.allow()
			s.over.cannot = func(f flow.Flow) error { return errorTo(f, 2) }
			s.over.refuse = func(f flow.Flow) error { return errorTo(f, 3) }
			s.over.during = func() { // XDP counts b by now
				cancel()
				s.cutMirror(t)
			}
			c, cfg := udpFlow(t, "c", "udp dport 3", 3), s.cfg
			c.Backend, cfg.Flows = "rdma", nil
			if _, err := s.e.SetFlows(ctx, append(slices.Clone(s.cfg.Flows), c), dataplane.SetOptions{Config: &cfg}); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			s.over.during, s.over.refuse = nil, nil
			s.refuseB()
		},
		"another name, and counted": func(t *testing.T, s *stacked) {
			s.allow()
			s.cfg.Flows[1].Name = "c"
			if _, err := s.e.SetFlows(t.Context(), s.cfg.Flows, dataplane.SetOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"a late failure under another name": func(t *testing.T, s *stacked) {
			s.allow()
			ctx, cancel := context.WithCancel(t.Context())
			s.over.during = cancel
			c := s.cfg.Flows[1]
			c.Name = "c"
			if _, err := s.e.SetFlows(ctx, []flow.Flow{s.cfg.Flows[0], c}, dataplane.SetOptions{}); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			s.over.during = nil
			s.refuseB()
		},
		"another name": func(t *testing.T, s *stacked) {
			s.cfg.Flows[1].Name = "c"
			cfg := s.cfg
			cfg.Flows = nil
			if _, err := s.e.SetFlows(t.Context(), s.cfg.Flows, dataplane.SetOptions{Config: &cfg}); err != nil {
				t.Fatal(err)
			}
			s.kill(t)
			s.again(t)
			s.refuseB()
			s.start(t)
		},
	} {
		for _, name := range []string{"b", "renamed"} {
			t.Run(what+", "+name, func(t *testing.T) {
				s := counting(t)
				s.cfg.Flows[1].Name = name
				s.refuseB()
				s.start(t)
				defer func() { s.close(t) }()
				s.pass(1)
				s.goesOn(t, "a", 11)
				if s.e.refused.flows[name] == nil {
					t.Fatalf("%s is not refused", name)
				}
				between(t, s)
				s.allow()
				s.refresh(t)
				s.pass(5)
				s.goesOn(t, s.cfg.Flows[1].Name, 15)
				if all := s.e.writer.Entries(); len(all) != 2 {
					t.Errorf("entries %v", all)
				}
			})
		}
	}
}

// addTooLate adds a refused flow in a call that ends when the device has the flow, and its packets pass: the flow does not
// stay.
func (s *stacked) addTooLate(t *testing.T, name string) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	s.over.during = end
	defer func() { s.over.during = nil }()
	s.e.ctl.Lock()
	defer s.e.ctl.Unlock()
	x := s.e.refused.flows[name]
	delete(s.e.refused.flows, name)
	if _, err := s.e.add(ctx, []flow.Flow{x.Flow}, control.NewCommit(s.e.life, "adding")); !errors.Is(err, context.Canceled) {
		t.Fatalf("adding %s: %v", name, err)
	}
	s.e.refused.flows[name] = x
}

// The entry of a refused flow is gone with its flow.
func TestARefusedFlowThatIsRemovedLeavesNoEntry(t *testing.T) {
	for name, remove := range map[string]func(*stacked) error{
		"removed": func(s *stacked) error { return s.e.RemoveFlows(t.Context(), "b") },
		"not set": func(s *stacked) error {
			_, err := s.e.SetFlows(t.Context(), s.cfg.Flows[:1], dataplane.SetOptions{})
			return err
		},
		"another match": func(s *stacked) error {
			cfg := s.cfg
			cfg.Flows = nil
			_, err := s.e.SetFlows(t.Context(), []flow.Flow{s.cfg.Flows[0], udpFlow(t, "b", "udp dport 7", 2)}, dataplane.SetOptions{Config: &cfg})
			return err
		},
		"another flow gets its name": func(s *stacked) error {
			_, err := s.e.SetFlows(t.Context(), []flow.Flow{udpFlow(t, "b", "udp dport 1", 1)}, dataplane.SetOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := counting(t)
			s.refuseB()
			s.start(t)
			defer s.close(t)
			var before []string
			for _, e := range s.e.writer.Entries() {
				before = append(before, e.Name)
				if waits := strings.HasPrefix(e.Name, "~"); waits != (e.Text != s.cfg.Flows[0].Identity()) || waits && (e.Valid || !e.Stale || e.Source != "") {
					t.Errorf("%+v", e)
				}
			}
			if len(before) != 2 {
				t.Errorf("entries %v", before)
			}
			if err := remove(s); err != nil {
				t.Fatal(err)
			}
			if all := s.e.writer.Entries(); len(all) != 1 {
				t.Errorf("entries %v", all)
			}
		})
	}
}

// A degraded start over the slots of an earlier process goes on without flow a, which is found to be refused at different
// steps. The total of flow b has the packets that passed between the processes, without a discontinuity.
func TestARefusedFlowCostsNoOtherFlowItsSlot(t *testing.T) {
	refuseA := func(f flow.Flow) error { return errorTo(f, 1) }
	for step, refuse := range map[string]func(*stacked){
		"assigning":  func(s *stacked) { s.over.cannot = refuseA },
		"installing": func(s *stacked) { s.over.refuse = refuseA },
		"publishing": func(s *stacked) { // the mirror has room for a and b
			s.cfg.Flows, s.cfg.Mirror.Counters = append(s.cfg.Flows, udpFlow(t, "c", "udp dport 3", 3)), 2
		},
	} {
		for where, backend := range map[string]flow.Backend{"hardware": "rdma", "software": "xdp"} {
			t.Run(step+", "+where, func(t *testing.T) {
				s := counting(t)
				s.cfg.Flows[0].Backend, s.cfg.Flows[1].Backend, s.cfg.RDMA.Audit = "rdma", backend, true
				s.start(t)
				s.pass(1)
				s.goesOn(t, "b", 11)
				was := s.e.flows["b"].past.Discontinuities
				s.close(t)
				s.over = newFakeHardware(true)
				s.pass(5)
				refuse(s)
				s.start(t)
				defer s.close(t)
				if len(s.e.refused.flows) != 1 {
					t.Fatalf("counts %v, refuses %v", s.e.flows, s.e.refused.flows)
				}
				s.pass(5)
				if got, n := s.total(t, "b"), s.e.flows["b"].past.Discontinuities; got.Packets != 21 || got.Bytes != 60*21 || n != was {
					t.Errorf("b: %+v, want 21 packets; %d discontinuities, want %d", got, n, was)
				}
				if where := string(backend); s.source("b") != where {
					t.Errorf("%s counts b, want %s", s.source("b"), where)
				}
				if got := len(s.under.flows); got != len(s.e.flows) {
					t.Errorf("XDP has rules of %d flows, %d are counted", got, len(s.e.flows))
				}
			})
		}
	}
}

// As before, but hardware, which lets no packet of flow b through to XDP, has the flow for a while: that is declared.
func TestAShadowThatWasBehindHardwareLacksPackets(t *testing.T) {
	s := counting(t)
	s.cfg.Flows[0].Backend, s.over.cannot = "rdma", func(flow.Flow) error { return errors.New("no spec looks at it") }
	s.start(t)
	s.pass(1)
	s.goesOn(t, "b", 11)
	was := s.e.flows["b"].past.Discontinuities
	s.close(t)
	s.over = newFakeHardware(true)
	s.over.takes, s.over.refuse = true, func(f flow.Flow) error { return errorTo(f, 1) }
	s.start(t)
	defer s.close(t)
	s.goesOn(t, "b", 11)
	if n := s.e.flows["b"].past.Discontinuities; n != was+1 || s.e.refused.flows["a"] == nil {
		t.Errorf("%d discontinuities, want %d; refused are %v", n, was+1, s.e.refused.flows)
	}
}

// A degraded change goes on without flow c, which the device refuses after it has flow b, and the mirror is cut short before
// each flow that is installed. All others have their entries and totals then.
func TestTheMirrorIsMadeAnewWhileRefusedFlowsAreFound(t *testing.T) {
	s := counting(t)
	s.start(t)
	defer s.close(t)
	s.over.refuse = func(f flow.Flow) error { return errorTo(f, 3) }
	s.over.during = func() { s.cutMirror(t) }
	c, cfg := udpFlow(t, "c", "udp dport 3", 3), s.cfg
	c.Backend, cfg.Flows = "rdma", nil
	flows := append(slices.Clone(s.cfg.Flows), udpFlow(t, "d", "udp dport 4", 4), c, udpFlow(t, "e", "udp dport 5", 5))
	if _, err := s.e.SetFlows(t.Context(), flows, dataplane.SetOptions{Config: &cfg}); err != nil {
		t.Fatal(err)
	}
	s.e.catalogue.Repair()
	for port := range uint16(5) {
		s.send(packetTo(port + 1))
	}
	for name, want := range map[string]uint64{"a": 11, "b": 11, "d": 1, "e": 1} {
		if got := s.total(t, name); got.Packets != want {
			t.Errorf("%s: %+v, want %d packets", name, got, want)
		}
	}
	if got := s.live(); !slices.Equal(got, []string{"a", "b", "d", "e"}) || s.e.refused.flows["c"] == nil {
		t.Errorf("the mirror has %q, refused are %v", got, s.e.refused.flows)
	}
}

// A degraded change is cancelled while it looks for refused flows. It leaves neither flows in the device nor entries.
func TestADegradedChangeThatIsCancelledLeavesNothing(t *testing.T) {
	s := counting(t)
	s.start(t)
	defer s.close(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.over.refuse = func(f flow.Flow) error { return errorTo(f, 3) }
	tries := 0
	s.over.during = func() { // c and d together, c, d; then each after the other was taken out
		if tries++; tries == 4 {
			cancel()
		}
	}
	c, d, cfg := udpFlow(t, "c", "udp dport 3", 3), udpFlow(t, "d", "udp dport 4", 4), s.cfg
	c.Backend, cfg.Flows = "rdma", nil
	if _, err := s.e.SetFlows(ctx, append(slices.Clone(s.cfg.Flows), d, c), dataplane.SetOptions{Config: &cfg}); !errors.Is(err, context.Canceled) {
		t.Fatalf("setting: %v", err)
	}
	s.cutMirror(t)
	s.e.catalogue.Repair()
	if got := s.live(); !slices.Equal(got, []string{"a", "b"}) || len(s.over.flows) != 2 || len(s.under.flows) != 2 {
		t.Errorf("the mirror has %q, the device %v, XDP %v", got, s.over.flows, s.under.flows)
	}
}

// A degraded change has flows for which the mirror has no room. They win over flows that are counted, and would count their
// packets. The tables never have them.
func TestARefusedFlowTakesNoPacketOfOthers(t *testing.T) {
	for _, where := range []string{"hardware", "software"} {
		t.Run(where, func(t *testing.T) {
			s := counting(t)
			s.cfg.Mirror.Counters = 3
			if where == "software" {
				s.over.cannot = func(flow.Flow) error { return errors.New("no spec looks at it") }
			}
			s.start(t)
			defer s.close(t)
			before, passed := s.total(t, "b").Packets, uint64(0)
			was := s.e.flows["b"].past.Discontinuities
			s.under.called = func() { s.pass(1); passed++ }
			cfg := s.cfg
			cfg.Flows = nil
			first := []flow.Flow{udpFlow(t, "c", "udp dport 3", 1), udpFlow(t, "d", "udp", 0), udpFlow(t, "e", "udp dport 2", 0)}
			if _, err := s.e.SetFlows(t.Context(), append(first, s.cfg.Flows...), dataplane.SetOptions{Config: &cfg}); err != nil {
				t.Fatal(err)
			}
			s.under.called = nil
			if passed == 0 || s.e.refused.flows["d"] == nil || s.e.refused.flows["e"] == nil || s.e.flows["c"] == nil {
				t.Fatalf("%d packets passed, refused are %v", passed, s.e.refused.flows)
			}
			if got := s.total(t, "b").Packets; got != before+passed || s.e.flows["b"].past.Discontinuities != was {
				t.Errorf("b has %d packets and %d discontinuities, want %d and %d", got, s.e.flows["b"].past.Discontinuities, before+passed, was)
			}
		})
	}
}

// A degraded change has a flow that only hardware may count, and hardware refuses it: that is known when software has its
// rules. A flow that it wins over declares that it may have missed packets. A flow of other packets does not.
func TestARefusedFlowThatCountedForAWhileIsDeclared(t *testing.T) {
	s := counting(t)
	s.over.cannot = func(flow.Flow) error { return errors.New("no spec looks at it") }
	s.start(t)
	defer s.close(t)
	was := map[string]uint64{}
	for name, c := range s.e.flows {
		was[name] = c.past.Discontinuities
	}
	cfg := s.cfg
	cfg.Flows = nil
	d := udpFlow(t, "d", "udp dport 2", 0)
	d.Backend = "rdma"
	if _, err := s.e.SetFlows(t.Context(), append([]flow.Flow{d}, s.cfg.Flows...), dataplane.SetOptions{Config: &cfg}); err != nil {
		t.Fatal(err)
	}
	if s.e.refused.flows["d"] == nil {
		t.Fatal("d is not refused")
	}
	for name, want := range map[string]uint64{"a": was["a"], "b": was["b"] + 1} {
		if n := s.e.flows[name].past.Discontinuities; n != want {
			t.Errorf("%s: %d discontinuities, want %d", name, n, want)
		}
	}
}

// The mirror has room for one flow. The device refuses the first one, so the second one is counted.
func TestTheRoomOfARefusedFlowIsGivenToTheNext(t *testing.T) {
	s := counting(t)
	s.over.cannot = func(flow.Flow) error { return errors.New("no spec looks at it") }
	s.cfg.Mirror = dataplane.MirrorConfig{Path: t.TempDir() + "/t.mirror", Counters: 1, History: -1}
	s.cfg.Flows[0].Backend = flow.RDMA
	s.start(t)
	defer s.close(t)
	s.refresh(t)
	if s.e.refused.flows["a"] == nil || s.e.flows["b"] == nil {
		t.Errorf("counts %v, refuses %v", s.e.flows, s.e.refused.flows)
	}
}

// The mirror has room for all flows, and the device refuses three of them. When it takes them, each is counted.
func TestRefusedFlowsThatFindRoomTogetherAreAllCounted(t *testing.T) {
	s := counting(t)
	s.over.cannot = func(flow.Flow) error { return errors.New("no spec looks at it") }
	s.cfg.Mirror = dataplane.MirrorConfig{Path: t.TempDir() + "/t.mirror", Counters: 4, History: -1}
	s.cfg.Flows = []flow.Flow{udpFlow(t, "a", "udp dport 1", 0)}
	for i, name := range []string{"b", "c", "d"} {
		f := udpFlow(t, name, fmt.Sprintf("udp dport %d", 2+i), 0)
		f.Backend = flow.RDMA
		s.cfg.Flows = append(s.cfg.Flows, f)
	}
	s.start(t)
	defer s.close(t)

	s.over.cannot = nil
	s.refresh(t)
	for _, f := range s.cfg.Flows {
		if s.e.flows[f.Name] == nil {
			t.Errorf("%s is not counted: %v", f.Name, s.e.refused.flows[f.Name].err)
		}
	}
}

// A refused flow is counted after a call that is not about it, and a set of the same flows changes nothing then: the order of
// the flows is still that of the configuration.
func TestARefusedFlowThatIsCountedLaterChangesNoOrder(t *testing.T) {
	for name, opts := range map[string]dataplane.SetOptions{
		"others are kept": {KeepOthers: true},
		"it is kept":      {Keep: []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := counting(t)
			s.over.cannot = func(flow.Flow) error { return errors.New("no spec looks at it") }
			a, b, c := udpFlow(t, "a", "udp dport 1", 0), udpFlow(t, "b", "udp", 0), udpFlow(t, "c", "udp", 0)
			b.Backend, c.Direction = flow.RDMA, flow.Egress
			s.cfg.Flows = []flow.Flow{a, b, c}
			s.start(t)
			defer s.close(t)

			given := []flow.Flow{a, c, udpFlow(t, "d", "udp dport 4", 0)}
			if _, err := s.e.SetFlows(t.Context(), given, opts); err != nil {
				t.Fatal(err)
			}
			s.over.cannot = nil
			s.refresh(t)
			if s.e.flows["b"] == nil {
				t.Fatalf("b is not counted: %v", s.e.refused.flows["b"].err)
			}

			opts.DryRun = true
			d, err := s.e.SetFlows(t.Context(), given, opts)
			if err != nil {
				t.Fatal(err)
			}
			if d.Unchanged != 4 {
				t.Errorf("the same set is another one: %v", d)
			}
		})
	}
}

// A flow was counted in a device and by its shadow beside. The hook of the shadow is lost and taken again while no process runs,
// and the next process counts the flow by the shadow alone: the total has what the shadow has counted since, and a discontinuity.
func TestATotalKeepsWhatItsShadowCountedBetweenProcesses(t *testing.T) {
	s := counting(t)
	s.cfg.RDMA.Audit = true
	s.start(t)
	s.pass(2)
	if got := s.total(t, "a"); got.Packets != 12 || s.source("a") != "rdma" {
		t.Fatalf("%+v by %s", got, s.source("a"))
	}
	was := s.e.flows["a"].past.Discontinuities
	s.close(t)

	s.over = newFakeHardware(true)
	s.over.cannot = func(flow.Flow) error { return errors.New("no spec looks at it") }
	s.under.lose()
	s.under.take()
	s.pass(5)
	s.start(t)
	defer s.close(t)
	if got := s.total(t, "a"); got.Packets != 17 || s.source("a") != "xdp" {
		t.Errorf("%+v by %s, want 17 packets by xdp", got, s.source("a"))
	}
	if n := s.e.flows["a"].past.Discontinuities; n != was+1 {
		t.Errorf("%d discontinuities, want %d", n, was+1)
	}
}
