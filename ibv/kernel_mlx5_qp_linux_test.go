//go:build releases && cgo

package ibv

import (
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// newRealData is newData over the uverbs kernel in software, with the real libmlx5.
func newRealData(t *testing.T, cqe int) *bench {
	t.Helper()
	b := &bench{t: t}
	b.lib = must(Load(Options{}))(t)
	b.closes(b.lib)
	b.ctx = must(b.lib.Open("mlx5_0"))(t)
	b.closes(b.ctx)
	b.pd = must(b.ctx.AllocPD())(t)
	b.closes(b.pd)
	b.cq = must(b.ctx.CreateCQ(CQOptions{CQE: cqe}))(t)
	b.closes(b.cq)
	return b
}

// TestKernelMLX5QueuePairs runs the tests of queue pairs over the real libmlx5 of each release.
func TestKernelMLX5QueuePairs(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		overReal = true
		for _, c := range []struct {
			name string
			test func(*testing.T)
		}{
			{"every operation moves data", TestPostMovesData},
			{"datagrams", TestPostDatagram},
			{"receiver not ready", TestPostWithoutReceive},
			{"frames", rawPacketSends},
			{"refusals", TestPostRefusals},
			{"no segment", TestPostNoSegment},
			{"state machine", TestStateMachine},
			{"attributes", TestQPAttrRoundTrip},
			{"regions", TestMemoryRegions},
			{"access to regions", TestRegionAccess},
			{"gids", TestQueryGID},
		} {
			t.Run(c.name, c.test)
		}
	})
}

// rawPacketSends: the card does not serve frames that are posted to a RAW_PACKET queue pair.
func rawPacketSends(t *testing.T) {
	b := newBench(t, newWire(t), "")
	m := b.region()
	b.post(b.qp, send(m))
	if wc := b.completions(1)[0]; wc.Status != WCLocQPOpErr {
		t.Errorf("a posted frame ends with %v", wc.Status)
	}
}
