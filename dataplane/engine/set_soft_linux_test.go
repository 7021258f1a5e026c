package engine

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// A flow in hardware gets another name there, and its device counts on. A flow that becomes a drop flow leaves its
// device for the time of the change, and returns to it with its total.
func TestSetFlowsInHardwareKeepsTheTotals(t *testing.T) {
	web, dns := flow.Flow{Name: "web", Match: match(t, "udp dport 1001")}, flow.Flow{Name: "dns", Match: match(t, "udp dport 1002")}
	b := newSoftBench(t, web, dns)
	b.run(t)
	wire := &bench{wire: b.Wire}
	var total [2]backend.Pair
	send := func(names ...string) {
		t.Helper()
		sent := wire.send(t, 3000, lab.Stream{Frames: [][]byte{udpTo(1001, 60)}}, lab.Stream{Frames: [][]byte{udpTo(1002, 60)}})
		for i, name := range names {
			total[i] = backend.Add(total[i], backend.Pair(sent[i]))
			if got := b.total(t, name); got != total[i] {
				t.Errorf("%s: %+v, want %+v", name, got, total[i])
			}
			if by := b.e.flows[name].source.Backend; by != "rdma" {
				t.Errorf("%s is counted by %s", name, by)
			}
		}
	}
	send("web", "dns")
	front, drop := web, dns
	front.Name = "front"
	drop.Action = flow.Drop
	d := set(t, b.e, []flow.Flow{front, dns}, dataplane.SetOptions{Renames: map[string]string{"web": "front"}})
	if d.String() != "~ front: was web\n" || b.e.flows["front"].past.Discontinuities != 0 {
		t.Errorf("difference %q, %d discontinuities", d, b.e.flows["front"].past.Discontinuities)
	}
	send("front", "dns")
	if d = set(t, b.e, []flow.Flow{front, drop}, dataplane.SetOptions{}); d.String() != "~ dns: count -> drop\n" {
		t.Errorf("difference %q", d)
	}
	send("front", "dns")
	set(t, b.e, []flow.Flow{drop}, dataplane.SetOptions{})
	t.Logf("%d and %d packets", total[0].Packets, total[1].Packets)
}
