//go:build releases && cgo

package ibv

import (
	"testing"
	"time"

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

// The tests of queue pairs run over the real libmlx5 of each release.
func TestKernelMLX5QueuePairsMoveData(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		overReal = true
		for _, c := range []struct {
			name string
			test func(*testing.T)
		}{
			{"every operation moves data", TestPostMovesData},
			{"datagrams", TestPostedDatagramArrivesBehindItsGRH},
			{"receiver not ready", TestSendWithoutAReceiveTakesTheQueuePairToERR},
			{"frames", rawPacketSends},
			{"refusals", TestPostRefusesRequestsWithMissingPointers},
			{"no segment", TestPostOfNoBytesNeedsNoMemory},
			{"state machine", TestCheckModifyAgreesWithTheLibrary},
			{"attributes", TestQPAttributesAreReadBackAsSet},
			{"regions", TestMemoryRegionsAreUnmappedOnlyByTheirOwner},
			{"access to regions", TestForbiddenAccessToARegionEndsInAnError},
			{"completions of a closed queue pair", leftCompletions},
			{"gids", TestGIDIsAnAddressOfTheNetdev},
		} {
			t.Run(c.name, c.test)
		}
	})
}

// rawPacketSends demands an error: the card of the uverbs kernel does not send frames of a RAW_PACKET queue pair.
func rawPacketSends(t *testing.T) {
	b := newBench(t, newWire(t), "")
	m := b.region()
	b.post(b.qp, send(m))
	if wc := b.completions(1)[0]; wc.Status != WCLocQPOpErr {
		t.Errorf("a posted frame ends with %v", wc.Status)
	}
}

// leftCompletions closes a queue pair whose completions are in a ring that MLX5Ring has described. They stay there, and each
// fails the call of Poll that takes it off: docs/embedding.md tells programs to poll them first.
func leftCompletions(t *testing.T) {
	b := newBench(t, newWire(t), "")
	first, _ := b.rc(nil)
	second, _ := b.rc(nil)
	from, to := b.region(), b.region()
	ring := must(b.cq.MLX5Ring())(t)
	write := SendWR{Opcode: WRRDMAWrite, Flags: SendSignaled, SGE: sge(from, 8), RemoteAddr: to.Addr(), RKey: to.RKey()}
	written := func(entries int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ring.Buf[entries*ring.CQESize-1]>>4 == 0xf; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the device has not written %d entries after 20 s", entries)
			}
		}
	}
	b.post(first, write, write)
	written(2)
	b.check(first.Close())
	b.post(second, write)
	written(3)
	var wc [4]WC
	for i := range 2 {
		if n, err := b.cq.Poll(wc[:]); n != 0 || err == nil {
			t.Errorf("entry %d of the closed queue pair: %d completions, %v, want an error", i, n, err)
		}
	}
	if n, err := b.cq.Poll(wc[:]); n != 1 || err != nil {
		t.Errorf("behind them: %d completions, %v, want 1", n, err)
	}
}
