package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// A flow that becomes a drop flow, and gets another name, keeps its total. A refused call leaves every rule in force, and a
// dry run changes nothing: both are shown by packets.
func TestASetThatIsRefusedLeavesTheRules(t *testing.T) {
	web := flow.Flow{Name: "web", Match: match(t, "udp dport 1001")}
	wall := flow.Flow{Name: "wall", Match: match(t, "tcp dport 7777"), Action: flow.Drop}
	b := newBench(t, "native", web, wall)
	b.cfg.Mirror.Counters = 6
	b.cfg.XDP.MaxFlows = 8
	e := b.start(t)
	m := reader(t, b.cfg)
	var total, dropped backend.Pair
	send := func(name string) {
		t.Helper()
		sent := b.send(t, 3000, lab.Stream{Frames: [][]byte{udpTo(1001, 60)}}, lab.Stream{Frames: [][]byte{tcpTo(7777)}})
		total, dropped = backend.Add(total, backend.Pair(sent[0])), backend.Add(dropped, backend.Pair(sent[1]))
		await(t, m, name, total)
		await(t, m, "wall", dropped)
	}
	send("web")
	closed := web
	closed.Action = flow.Drop
	dry, err := e.SetFlows(t.Context(), []flow.Flow{closed, wall}, dataplane.SetOptions{DryRun: true})
	if err != nil || dry.String() != "~ web: count -> drop\n" {
		t.Fatalf("dry run: %q, %v", dry, err)
	}
	many := func(n int, text string) []flow.Flow {
		out := []flow.Flow{closed}
		for i := range n {
			out = append(out, flow.Flow{Name: fmt.Sprintf("n%d", i), Match: match(t, fmt.Sprintf(text, i+1))})
		}
		return out
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for what, c := range map[string]struct {
		ctx   context.Context
		flows []flow.Flow
		want  error
	}{
		"an invalid flow": {t.Context(), []flow.Flow{closed, {Name: "no name"}}, dataplane.ErrInvalid},
		"a full mirror":   {t.Context(), many(6, "udp dport %d"), dataplane.ErrFull},
		// ICMP is two rules, one of each family.
		"full tables":      {t.Context(), many(4, "icmp type %d"), dataplane.ErrFull},
		"RDMA":             {t.Context(), []flow.Flow{closed, {Name: "hw", Backend: "rdma"}}, dataplane.ErrUnplaced},
		"a cancelled call": {ended, []flow.Flow{closed}, context.Canceled},
	} {
		if _, err := e.SetFlows(c.ctx, c.flows, dataplane.SetOptions{}); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", what, err, c.want)
		}
		send("web")
	}
	through, err := b.wire.Near.Observe(7777, false)
	if err != nil {
		t.Fatal(err)
	}
	front := closed
	front.Name = "front"
	d := set(t, e, []flow.Flow{wall, front}, dataplane.SetOptions{Renames: map[string]string{"web": "front"}})
	if d.String() != "~ front: was web, count -> drop\n" || d.Unchanged != 1 {
		t.Errorf("difference %q, %d unchanged", d, d.Unchanged)
	}
	send("front")
	if seen, err := through.Stop(); err != nil || seen.Packets != 0 {
		t.Errorf("%d packets came through, err %v", seen.Packets, err)
	}
	if c := e.flows["front"]; c.past.Discontinuities != 0 || c.Action != flow.Drop {
		t.Errorf("front is %+v with %d discontinuities", c.Flow, c.past.Discontinuities)
	}
	t.Logf("%d packets counted, %d dropped", total.Packets, dropped.Packets)
}
