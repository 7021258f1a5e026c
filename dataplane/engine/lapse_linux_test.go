package engine

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
)

// Counters that cannot be read for a while, longer than a device is trusted, cost nothing where there is
// nothing else to count with: the rules stay and count, and the total is exact when reading succeeds.
func TestALapseOfReadingCostsNothing(t *testing.T) {
	const giveUp = 8 // reads in a row that fail until the backend gives a counter up
	b := newSoftBench(t, webFlow(t))
	b.Config.Backend = "rdma"
	// More failures in a row than a counter is given up after, over some 5 s.
	b.Env.Fail = []ibvtest.Fault{{Verb: "DEVX_OBJ_QUERY", Errno: "EIO", From: 100, To: 100 + giveUp + 1}}
	b.run(t)
	made := b.Calls(t, "CREATE_FLOW")
	frames := make([][]byte, 64)
	for i := range frames {
		frames[i] = udpTo(1001, 60)
	}
	givenUp := false
	for b.Calls(t, "DEVX_OBJ_QUERY") < 100+giveUp+2 {
		b.pass(t, flow.Ingress, frames)
		b.sent = backend.Add(b.sent, backend.Pair{Packets: 64, Bytes: 64 * 60})
		over := b.e.mover.stack.hardware
		givenUp = givenUp || over.Gone()["web"] != nil
	}
	if !givenUp {
		t.Error("the counter was never given up: the test shows nothing")
	}
	if got := b.total(t, "web"); got != b.sent {
		t.Errorf("counted %+v, want %+v", got, b.sent)
	}
	if n := b.Calls(t, "CREATE_FLOW"); n != made {
		t.Errorf("%d rules were made again", n-made)
	}
	b.e.ctl.Lock()
	defer b.e.ctl.Unlock()
	if c := b.e.flows["web"]; c.past.Discontinuities != 0 || c.gone != nil {
		t.Errorf("%d discontinuities, gone: %v", c.past.Discontinuities, c.gone)
	}
}
