package engine

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// TestSetFlowsSeesAnEditInPlace changes the flows that it gave to SetFlows, and those that Placements returned, in their
// own memory: the set is as it was before the next call, and that call finds the difference.
func TestSetFlowsSeesAnEditInPlace(t *testing.T) {
	b := newBench(t, "native")
	e := b.start(t)
	flows := []flow.Flow{{Name: "a", Match: match(t, "udp dport 1001"), Labels: map[string]string{"n": "1"}}}
	set(t, e, flows, dataplane.SetOptions{})
	for round := uint16(1); round < 4; round++ {
		if round == 2 {
			placed, err := e.Placements(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			flows = []flow.Flow{placed[0].Flow}
		}
		flows[0].Match.UDP.Dst.Value++
		flows[0].Labels["n"] += "1"
		d := set(t, e, flows, dataplane.SetOptions{})
		if len(d.Changed) != 1 || len(d.Changed[0].Fields) != 2 || !d.Changed[0].Anew {
			t.Fatalf("difference %q, %d unchanged", d, d.Unchanged)
		}
		sent := b.send(t, 100, lab.Stream{Frames: [][]byte{udpTo(1001+round, 60)}})
		await(t, reader(t, b.cfg), "a", backend.Pair(sent[0]))
	}
}
