package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// occupy attaches another program to the XDP hook of an interface.
func occupy(t *testing.T, e *lab.End) link.Link {
	t.Helper()
	l, err := tryOccupy(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func tryOccupy(e *lab.End) (l link.Link, err error) {
	err = e.NS.Do(func() error {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "foreign", Type: ebpf.XDP, License: "GPL", AttachType: ebpf.AttachXDP,
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
		})
		if err != nil {
			return err
		}
		defer p.Close()
		l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: e.Index})
		return err
	})
	return l, err
}

// One of three interfaces has another program on its hook, and counting beside it is refused. A start, strict or degraded,
// counts on the other two, every packet, and takes the third when it is free.
func TestADegradedStartCountsOnTheOtherInterfaces(t *testing.T) {
	for start, list := range map[dataplane.StartMode][]dataplane.Interface{
		dataplane.StartStrict: {{Name: "eth0"}, {Name: "eth1"}, {Name: "eth2"}}, dataplane.StartDegraded: {{Name: "eth*"}},
	} {
		t.Run(string(start), func(t *testing.T) {
			h := newHost(t, func(c *dataplane.Config) {
				c.Start, c.XDP.Beside = start, []dataplane.Beside{dataplane.BesideRefuse}
			}, list...)
			var pairs []*lab.Pair
			for i := range 3 {
				pairs = append(pairs, h.plug(t, fmt.Sprintf("eth%d", i)))
			}
			occupy(t, pairs[1].A)
			h.run(t)
			c := h.condition(t, true, dataplane.CodeInterfaceRefused, "eth1")
			if !strings.Contains(c.Text, "foreign") {
				t.Errorf("the condition does not name the program: %q", c.Text)
			}
			lab.Step(t, c.Fix, "remove the cause")
			h.devices(t, "a", "eth0", "eth2")
			h.counted(t, pairs[0].B)
			h.sendTo(t, pairs[1].B, 1000)
			h.counted(t, pairs[2].B)
			if n := h.discontinuities(); n != 0 {
				t.Errorf("%d discontinuities, want 0", n)
			}
			// Lost hooks are noticed beside the refused one. The engine sees both at once: the loss of one, seen before, would be
			// a discontinuity of its own.
			x := h.e.backends[0].(*xdp.Backend)
			h.e.ctl.Lock()
			was := x.Now()
			detachByForce(t, h.cfg.XDP.PinDir, "link-*-xdp")
			lab.Eventually(t, "both hooks taken again", func() bool { return x.Now() == was+2 })
			h.e.ctl.Unlock()
			lab.Eventually(t, "the discontinuity", func() bool { return h.discontinuities() == 1 })
			h.devices(t, "a", "eth0", "eth2")
			h.counted(t, pairs[0].B)
			pairs[1].A.Do(t, lab.Step(t, c.Text, "bpftool link detach id …"))
			h.condition(t, false, dataplane.CodeInterfaceRefused, "eth1")
			h.devices(t, "a", "eth0", "eth1", "eth2")
			h.counted(t, pairs[1].B)
		})
	}
}

// A degraded start goes on without the flows that nothing here can count, or that find no room, and counts the others. A
// refused flow is listed with its reasons, can be removed, and is counted when its cause is gone.
func TestADegradedStartGoesOnWithoutRefusedFlows(t *testing.T) {
	h := newHost(t, func(c *dataplane.Config) {
		c.XDP.MaxFlows = 4
		c.Flows = []flow.Flow{
			{Name: "device", Match: match(t, "udp dport 7"), Backend: flow.RDMA},
			{Name: "a", Match: match(t, "udp dport 1001")},
			{Name: "nic", Match: match(t, "tcp dport 1-65534"), Backend: flow.RDMA},
			{Name: "b", Match: match(t, "udp dport 1002")},
			{Name: "c", Match: match(t, "udp dport 1003")},
			{Name: "d", Match: match(t, "udp dport 1004")},
			{Name: "late", Match: match(t, "udp dport 1005")},
		}
	}, dataplane.Interface{Name: "eth0"})
	eth0 := h.plug(t, "eth0")
	err := h.wire.Near.NS.Do(func() error {
		_, err := New(context.Background(), h.cfg, Options{})
		return err
	})
	if err == nil {
		t.Fatal("the strict start went on")
	}
	h.cfg.Start = dataplane.StartDegraded
	h.run(t)
	for _, name := range []string{"device", "nic", "late"} {
		c := h.condition(t, true, dataplane.CodeFlowRefused, name)
		lab.Step(t, c.Fix, "remove the cause that the text names")
		lab.Step(t, c.Fix, "or remove the flow from the configuration, then: flowtally apply")
	}
	h.devices(t, "b", "eth0")
	h.counted(t, eth0.B)
	all, err := h.e.Placements(t.Context())
	if err != nil || len(all) != 7 {
		t.Fatalf("%d placements, %v", len(all), err)
	}
	for _, p := range all {
		refused := slices.Contains([]string{"device", "nic", "late"}, p.Flow.Name)
		if p.Source.IsZero() != refused || refused && (len(p.Rejected) == 0 || p.Rejected[0].Reason == "") {
			t.Errorf("%s: source %v, rejected %v", p.Flow.Name, p.Source, p.Rejected)
		}
	}
	if _, err := h.e.AddFlows(t.Context(), flow.Flow{Name: "late", Match: match(t, "tcp")}); !errors.Is(err, dataplane.ErrExists) {
		t.Errorf("adding a flow of the name of a refused one: %v", err)
	}
	if err := h.e.RemoveFlows(t.Context(), "nic", "d"); err != nil { // one refused, and one that makes room
		t.Fatal(err)
	}
	h.devices(t, "late", "eth0")
	h.condition(t, false, dataplane.CodeFlowRefused, "late")
	h.condition(t, false, dataplane.CodeFlowRefused, "nic")
	// A change by a file goes on without them too, and undone it leaves them as they were.
	file := h.cfg
	file.Flows = nil
	wanted := append(slices.Clone(h.cfg.Flows[:2]), flow.Flow{Name: "e", Match: match(t, "tcp dport 1-65533"), Backend: flow.RDMA}, flow.Flow{Name: "b", Match: match(t, "udp dport 1002")})
	file.Interfaces = []dataplane.Interface{{Name: "eth0", Direction: dataplane.DirectionEgress}}
	if _, err := h.e.SetFlows(t.Context(), wanted, dataplane.SetOptions{Config: &file}); !errors.Is(err, dataplane.ErrInvalid) {
		t.Errorf("flows without an interface of their direction: %v", err)
	}
	h.condition(t, true, dataplane.CodeFlowRefused, "device")
	file.Interfaces = h.cfg.Interfaces
	d, err := h.e.SetFlows(t.Context(), wanted, dataplane.SetOptions{Config: &file})
	if want := "- c\n+ device\n+ e\n- late\n"; err != nil || d.String() != want {
		t.Errorf("%q, %v, want %q", d.String(), err, want)
	}
	h.condition(t, true, dataplane.CodeFlowRefused, "device")
	h.condition(t, true, dataplane.CodeFlowRefused, "e")
	h.counted(t, eth0.B)
	if all, err = h.e.Placements(t.Context()); err != nil || len(all) != 4 {
		t.Errorf("%d placements, %v", len(all), err)
	}
	d, err = h.e.SetFlows(t.Context(), []flow.Flow{{Name: "a", Match: match(t, "udp dport 1001")}}, dataplane.SetOptions{})
	if want := "- b\n- device\n- e\n"; err != nil || d.String() != want {
		t.Errorf("%q, %v, want %q", d.String(), err, want)
	}
	h.condition(t, false, dataplane.CodeFlowRefused, "device")
	h.counted(t, eth0.B)
}
