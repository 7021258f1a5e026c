//go:build releases && cgo

package ibv

import (
	"testing"
	"time"

	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// It prints the time in which a program counts 64 completions that are there: by ibv_poll_cq of the real libmlx5, by that and
// the ring, as source cq_ring does, and by the entry of a collapsed queue. The three counts are equal. Times are not tested.
func TestKernelCostOfCountingCompletions(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		r := newCollapsedRig(t)
		const rounds, batch = 500, 64
		var took [3]time.Duration
		var counts [3]uint64

		writes := make([]SendWR, batch)
		backs := make([]SendWR, batch)
		for i := range writes {
			writes[i] = SendWR{Opcode: WRRDMAWrite, SGE: SGE{Addr: r.mr.Addr(), Length: 64, LKey: r.mr.LKey()}, RemoteAddr: r.peerMR.Addr(), RKey: r.peerMR.RKey()}
			backs[i] = SendWR{Opcode: WRRDMAWrite, SGE: SGE{Addr: r.peerMR.Addr(), Length: 64, LKey: r.peerMR.LKey()}, RemoteAddr: r.mr.Addr(), RKey: r.mr.RKey()}
		}
		ring := must(r.cq.MLX5Ring())(t)
		walk := must(flexio.NewRing(ring.Buf, flexio.RingOptions{EntrySize: ring.CQESize}))(t)
		counter := flexio.NewRingCounter(walk, func(done, failed uint64) { counts[1] += done }, nil)
		taken := 0
		// entries waits until the device has written as many entries of the ring.
		entries := func(n int) {
			at := (n - 1) % ring.CQECount
			within(t, "entries", func() bool {
				own := ring.Buf[at*ring.CQESize+ring.CQESize-1]
				return own>>4 != 0xf && int(own&1) == (n-1)/ring.CQECount&1
			})
		}
		poll := func() (n int) {
			var wc [batch]WC
			return must(r.cq.Poll(wc[:]))(t)
		}

		for range rounds {
			must(r.peer.PostSend(backs))(t)
			entries(taken + batch)
			start := time.Now()
			n := poll()
			took[0] += time.Since(start)
			counts[0] += uint64(n)
			taken += n
			must(counter.Count(n))(t) // the walk follows, outside of the time
			counts[1] -= uint64(n)

			must(r.peer.PostSend(backs))(t)
			entries(taken + batch)
			start = time.Now()
			must(counter.Count(0))(t)
			n = poll()
			took[1] += time.Since(start)
			taken += n
			must(counter.Count(n))(t)

			must(r.qp.PostSend(writes))(t)
			posted, _ := r.qp.Posted()
			within(t, "entry", func() bool {
				b := r.sendEntry()
				return uint16(b[60])<<8|uint16(b[61]) == uint16(posted-1)
			})
			start = time.Now()
			s := r.sends.SampleUpTo(func() uint64 { return posted })
			r.qp.Free(s.Completed, 0)
			took[2] += time.Since(start)
			counts[2] = s.Completed
		}
		for i, name := range []string{"ibv_poll_cq", "ibv_poll_cq and the ring", "the collapsed entry"} {
			if counts[i] != rounds*batch {
				t.Errorf("%s counts %d of %d completions", name, counts[i], rounds*batch)
			}
			t.Logf("64 completions by %s: %v", name, took[i]/rounds)
		}
	})
}
