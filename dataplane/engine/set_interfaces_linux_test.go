package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// TestSetFlowsChangesInterfaces changes the interfaces together with the flows, all or none. Flows of interfaces that come
// and go are in the same call. Each packet on an interface that stays, or that has come, is counted.
func TestSetFlowsChangesInterfaces(t *testing.T) {
	names := func(names ...string) (list []dataplane.Interface) {
		for _, n := range names {
			list = append(list, dataplane.Interface{Name: n, Mode: "native"})
		}
		return list
	}
	h := newHost(t, func(c *dataplane.Config) {
		c.Flows = append(c.Flows, flow.Flow{Name: "old", Match: match(t, "udp dport 1003"), Interface: "eth0"})
	}, names("eth0", "eth1")...)
	eth0, eth1, eth2 := h.plug(t, "eth0"), h.plug(t, "eth1"), h.plug(t, "eth2")
	h.run(t)
	h.devices(t, "a", "eth0", "eth1")
	h.counted(t, eth0.B)
	h.counted(t, eth1.B)
	a := h.cfg.Flows[0]
	set := func(flows []flow.Flow, opts dataplane.SetOptions, list ...string) (dataplane.Difference, error) {
		cfg := h.cfg
		cfg.Flows, cfg.Interfaces, cfg.Poll.Period = nil, names(list...), 2*time.Millisecond
		opts.Config = &cfg
		return h.e.SetFlows(t.Context(), flows, opts)
	}
	stands := func() {
		t.Helper()
		list, err := h.e.Interfaces(t.Context())
		if err != nil || !slices.Equal(list, names("eth0", "eth1")) {
			t.Errorf("interfaces %+v, %v", list, err)
		}
		h.devices(t, "a", "eth0", "eth1")
		h.devices(t, "old", "eth0")
	}

	fresh := flow.Flow{Name: "fresh", Match: match(t, "udp dport 1004"), Interface: "eth2"}
	if _, err := set([]flow.Flow{a, fresh}, dataplane.SetOptions{Keep: []string{"old"}}, "eth1", "eth2"); !errors.Is(err, dataplane.ErrInvalid) {
		t.Errorf("a flow that stays would have no interface: %v", err)
	}
	stands()
	elsewhere := flow.Flow{Name: "hw", Match: match(t, "udp dport 1005"), Backend: "rdma"}
	if _, err := set([]flow.Flow{a, fresh, elsewhere}, dataplane.SetOptions{}, "eth1", "eth2"); !errors.Is(err, dataplane.ErrUnplaced) {
		t.Errorf("a flow that nothing counts: %v", err)
	}
	stands()
	h.counted(t, eth0.B)
	h.counted(t, eth1.B)
	if _, err := set([]flow.Flow{a}, dataplane.SetOptions{}); !errors.Is(err, dataplane.ErrInvalid) {
		t.Errorf("no interface at all: %v", err)
	}

	want := "~ setting interfaces: [eth0=native, eth1=native] -> [eth1=native, eth2=native]\n~ setting poll.period: 1ms -> 2ms\n+ fresh\n- old\n"
	for _, dry := range []bool{true, false} {
		if d, err := set([]flow.Flow{a, fresh}, dataplane.SetOptions{DryRun: dry}, "eth1", "eth2"); err != nil || d.String() != want {
			t.Fatalf("%v; difference\n%s", err, d)
		}
	}
	h.devices(t, "a", "eth1", "eth2")
	h.devices(t, "fresh", "eth2")
	h.counted(t, eth1.B)
	h.counted(t, eth2.B)
	h.sendTo(t, eth0.B, 1000) // is not counted on any more
	h.counted(t, eth1.B)
	if n := h.discontinuities(); n != 0 {
		t.Errorf("%d discontinuities", n)
	}
}

// TestSetInterfacesReturnsWithTheSources: when a call that changes the interfaces returns, Placements has the interfaces
// of the new list.
func TestSetInterfacesReturnsWithTheSources(t *testing.T) {
	h := newHost(t, nil, dataplane.Interface{Name: "eth0"})
	eth0, eth1 := h.plug(t, "eth0"), h.plug(t, "eth1")
	h.run(t)
	h.counted(t, eth0.B)
	for round := range 20 {
		list := []string{"eth0", "eth1"}[:1+(round+1)%2]
		if err := h.setInterfaces(t, list...); err != nil {
			t.Fatal(err)
		}
		placed, err := h.e.Placements(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range placed[0].Source.Devices {
			got = append(got, d.Name)
		}
		if slices.Sort(got); !slices.Equal(got, list) {
			t.Errorf("round %d: the flow is counted on %q, want %q", round, got, list)
		}
	}
	if err := h.setInterfaces(t, "eth0", "eth1"); err != nil {
		t.Fatal(err)
	}
	h.counted(t, eth1.B)
}

// A list of which no interface exists is refused, in a dry run too, as a start with the list is. It is taken if its
// entries are optional, if one exists, and with start: degraded.
func TestSetInterfacesRefusesAListThatDoesNotExist(t *testing.T) {
	h := newHost(t, nil, dataplane.Interface{Name: "eth0"})
	eth0 := h.plug(t, "eth0")
	h.run(t)
	h.counted(t, eth0.B)
	set := func(h *host, dry bool, list ...dataplane.Interface) error {
		file := h.cfg
		file.Flows, file.Interfaces = nil, list
		_, err := h.e.SetFlows(t.Context(), nil, dataplane.SetOptions{KeepOthers: true, Config: &file, DryRun: dry})
		return err
	}
	for _, dry := range []bool{true, false} {
		err := set(h, dry, dataplane.Interface{Name: "eth7"}, dataplane.Interface{Name: "wan*"})
		if !errors.Is(err, dataplane.ErrUnplaced) || !strings.Contains(err.Error(), "interfaces eth7, wan* do not exist; there are: lo, ") {
			t.Errorf("dry run %v: %v", dry, err)
		}
	}
	h.devices(t, "a", "eth0")
	h.counted(t, eth0.B)
	if err := set(h, false, dataplane.Interface{Name: "eth7"}, dataplane.Interface{Name: "eth0"}); err != nil {
		t.Errorf("one of two exists: %v", err)
	}
	c := h.condition(t, true, dataplane.CodeInterfaceMissing, "eth7")
	lab.Step(t, c.Fix, "bring the interface back")
	h.plug(t, "eth7")
	h.condition(t, false, dataplane.CodeInterfaceMissing, "eth7")
	if err := set(h, false, dataplane.Interface{Name: "eth6", Optional: true}); err != nil {
		t.Errorf("an optional interface: %v", err)
	}
	h.condition(t, false, dataplane.CodeInterfaceMissing, "eth6")

	lenient := newHost(t, func(c *dataplane.Config) { c.Start = dataplane.StartDegraded }, dataplane.Interface{Name: "eth0"})
	lenient.plug(t, "eth0")
	lenient.run(t)
	if err := set(lenient, false, dataplane.Interface{Name: "eth8"}); err != nil {
		t.Errorf("start: degraded: %v", err)
	}
	lenient.condition(t, true, dataplane.CodeInterfaceMissing, "eth8")
}
