package engine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
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
