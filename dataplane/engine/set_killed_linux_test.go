package engine

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// TestAKillWhileAMatchChangesIsADiscontinuity ends an instance, with its pins kept, when a flow's rules are replaced
// and its former counter is still there, as kill -9 within SetFlows does. The next instance has the former flows. The
// total goes on, and the packets that passed between are declared by a discontinuity.
func TestAKillWhileAMatchChangesIsADiscontinuity(t *testing.T) {
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")}, flow.Flow{Name: "b", Match: match(t, "udp dport 1003")})
	b.cfg.XDP.KeepPins = true
	e := b.start(t)
	to := func(port uint16) lab.Stream { return lab.Stream{Frames: [][]byte{udpTo(port, 60)}} }
	sent := b.send(t, 100, to(1001))
	await(t, reader(t, b.cfg), "a", backend.Pair(sent[0]))
	was := e.flows["a"].Placed
	now := was
	now.Match = match(t, "udp dport 1002")
	if _, _, err := e.backends[0].(*xdp.Backend).Alter(t.Context(), backend.Change{Was: []backend.Placed{was}, Now: []backend.Placed{now}}); err != nil {
		t.Fatal(err)
	}
	b.send(t, 50, to(1001), to(1003))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	b.cfg.XDP.KeepPins = false
	e = b.start(t)
	more := b.send(t, 10, to(1001))
	await(t, reader(t, b.cfg), "a", backend.Add(backend.Pair(sent[0]), backend.Pair(more[0])))
	want := map[string]uint64{"a": 1, "b": 0}
	for _, entry := range e.writer.Entries() {
		if n, there := want[entry.Name]; !there || entry.Continuity.Discontinuities != n {
			t.Errorf("%s: %d discontinuities, want %d", entry.Name, entry.Continuity.Discontinuities, n)
		}
	}
}
