package engine

import (
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	kernel "github.com/flowtally/flowtally/xdp"
)

// A flow that drops is dropped by whatever counts it: its shadow lets packets pass that hardware
// is to drop (the software one only counts them), and drops them when it takes over.
func TestADropFlowDropsWhereItIsCounted(t *testing.T) {
	b := newSoftBench(t,
		flow.Flow{Name: "bad", Match: match(t, "ipv4 udp dport 1001"), Action: flow.Drop, Priority: 1},
		flow.Flow{Name: "rest", Match: match(t, "ipv4 ttl 0x40/0x40 udp"), Priority: 9})
	b.run(t)
	if got := b.place(t, "bad") + " " + b.place(t, "rest"); got != "rdma/devx xdp/native" {
		t.Fatalf("counted by %s", got)
	}
	drops := func() bool { // no other flow drops
		rules := b.e.mover.stack.software.(*xdp.Backend).Inspect().Rules.Rules()
		return slices.ContainsFunc(rules, func(r kernel.Rule) bool { return r.Drop })
	}
	frames := make([][]byte, 512)
	for i := range frames {
		frames[i] = udpTo([]uint16{1001, 1002}[i%2], 60)
	}
	check := func(n uint64) {
		t.Helper()
		b.pass(t, flow.Ingress, frames)
		for _, name := range []string{"bad", "rest"} {
			if got := b.total(t, name); got.Packets != n {
				t.Errorf("%s: %d packets, want %d", name, got.Packets, n)
			}
		}
	}
	check(256)
	if drops() {
		t.Error("the shadow drops what hardware is to count")
	}
	if err := b.control.Remove(b.Device); err != nil {
		t.Fatal(err)
	}
	b.counts(t, "bad", "xdp")
	if !drops() {
		t.Error("the flow does not drop in XDP")
	}
	check(512)
	if !b.lacks["bad"].Unknown {
		t.Error("what a device took that drops is not seen by XDP, and yet not unknown")
	}
	if err := b.control.Return(b.Device); err != nil {
		t.Fatal(err)
	}
	b.counts(t, "bad", "rdma")
	if drops() {
		t.Error("the shadow still drops")
	}
	check(768)
}
