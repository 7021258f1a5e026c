package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/classbench"
)

// TestCostlyFlowsAreRefusedByName: an instance says what a packet costs now, a dry run what it will cost, and both refuse
// flows above xdp.worst_cost with the names of the flows that cause it. The flows in force stay.
func TestCostlyFlowsAreRefusedByName(t *testing.T) {
	b := newBench(t, "native", flow.Flow{Name: "web", Match: match(t, "udp dport 1001")}, flow.Flow{Name: "ranged", Match: match(t, "tcp dport 7777-7779")})
	b.cfg.XDP.WorstCost = 40
	e := b.start(t)
	cost := func(opts dataplane.SetOptions, flows ...flow.Flow) (*dataplane.Cost, error) {
		opts.DryRun, opts.KeepOthers, opts.Cost = true, true, true
		d, err := e.SetFlows(t.Context(), flows, opts)
		return d.Cost, err
	}
	now, err := cost(dataplane.SetOptions{})
	if err != nil || now == nil || now.Bound != 40 || now.Nodes < 1 || now.Rules <= 0 || now.IPv4.Rules < 1 || now.Worst().Steps() > 40 {
		t.Fatalf("the cost in force is %+v, %v", now, err)
	}
	ip := func(a uint32) string { return fmt.Sprintf("%d.%d.%d.%d", a>>24, a>>16&255, a>>8&255, a&255) }
	var many []flow.Flow
	for i, r := range classbench.FewBits(200, 7) {
		text := fmt.Sprintf("ipv4 src %s/%s dst %s/%s tcp sport %d-%d", ip(r.Src), ip(r.SrcMask), ip(r.Dst), ip(r.DstMask), r.SrcPort.First+1, r.SrcPort.Last)
		many = append(many, flow.Flow{Name: fmt.Sprint("bits", i), Match: match(t, text)})
	}
	if after, err := cost(dataplane.SetOptions{}, many[:8]...); err != nil || after == nil || after.Worst().Steps() <= now.Worst().Steps() {
		t.Errorf("the cost with 8 flows more is %+v, %v; now it is %+v", after, err, now)
	}
	named := func(what string, err error) {
		if !errors.Is(err, dataplane.ErrCostly) || !strings.Contains(err.Error(), " are allowed by xdp.worst_cost: because of the flows ") || !strings.Contains(err.Error(), "bits1, bits2, ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = cost(dataplane.SetOptions{}, many...)
	named("a dry run", err)
	_, err = e.AddFlows(t.Context(), many...)
	named("adding", err)
	t.Log(err)
	_, err = e.SetFlows(t.Context(), many, dataplane.SetOptions{KeepOthers: true})
	named("setting", err)
	if placed, err := e.Placements(t.Context()); err != nil || len(placed) != 2 {
		t.Errorf("%d flows after refused changes, %v", len(placed), err)
	}
	if after, err := cost(dataplane.SetOptions{}); err != nil || *after != *now {
		t.Errorf("the cost after refused changes is %+v, %v; before it was %+v", after, err, now)
	}
}
