//go:build releases && cgo

package ibv

import (
	"bytes"
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
		for _, c := range []struct {
			name string
			test func(*testing.T)
		}{
			{"every operation moves data", TestPostMovesData},
			{"datagrams", TestPostedDatagramArrivesBehindItsGRH},
			{"receiver not ready", TestSendWithoutAReceiveTakesTheQueuePairToERR},
			{"frames", rawPacketSends},
			{"sizes of queues", queueSizes},
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

// rawPacketSends posts a frame, which leaves by the netdev: an egress flow counts it.
func rawPacketSends(t *testing.T) {
	b := newBench(t, newWire(t))
	n := b.counters(CounterAttach{Counter: CounterPackets})
	b.flowAttr(FlowAttr{Flags: FlowEgress, Port: 1, Specs: []Spec{EthSpec{}, CountSpec{Counters: n}}})
	m := b.region()
	copy(m.Bytes(), b.frame(b.wire.Far.MAC))
	b.post(b.qp, send(m))
	b.succeed(1)
	b.wants(n, 1)
}

// frame is a frame of 64 bytes from the device.
func (b *bench) frame(to []byte) []byte {
	f := make([]byte, 64)
	copy(f, to)
	copy(f[6:], b.wire.Near.MAC)
	f[12], f[13] = 0x88, 0xb5 // for experiments
	for i := 14; i < len(f); i++ {
		f[i] = byte(i)
	}
	return f
}

// TestKernelDeliversFramesToRawPacketQueuePairs sends frames to the device and from it. A flow delivers them to its queue
// pair alone, which steals them from flows of lower priority. With DONT_TRAP the next flow has a copy. A group has no
// priorities: mlx5 has one table for groups.
func TestKernelDeliversFramesToRawPacketQueuePairs(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		wire := newWire(t)
		group := []byte{0x01, 0x50, 0x56, 0x19, 0x20, 0xa7}
		for _, c := range []struct {
			name       string
			first      FlowFlags // of the flow of the first queue pair
			posts      bool      // the frame: the device posts it
			to         []byte
			want, next int // frames that the queue pairs receive
		}{
			{"a plain flow steals", 0, false, wire.Near.MAC, 1, 0},
			{"DONT_TRAP copies", FlowDontTrap, false, wire.Near.MAC, 1, 1},
			{"a posted frame to a group comes back to all", 0, true, group, 1, 1},
			{"a posted frame to the device comes back", FlowDontTrap, true, wire.Near.MAC, 1, 1},
			{"a posted frame to another device does not", FlowDontTrap, true, wire.Far.MAC, 0, 0},
		} {
			t.Run(c.name, func(t *testing.T) {
				b := newBench(t, wire)
				m := b.region()
				other := must(b.pd.CreateQP(QPOptions{Type: QPTRawPacket, SendCQ: b.cq, RecvCQ: b.cq, Cap: smallCap}))(t)
				b.closes(other)
				b.check(other.Modify(QPAttr{State: QPSInit, PortNum: 1}, QPAttrState|QPAttrPort))
				b.check(other.Modify(QPAttr{State: QPSRTR}, QPAttrState))
				specs := []Spec{EthSpec{Val: EthFilter{DstMAC: [6]byte(c.to)}, Mask: EthFilter{DstMAC: [6]byte{255, 255, 255, 255, 255, 255}}}}
				b.flowAttr(FlowAttr{Flags: c.first, Port: 1, Specs: specs})
				f := must(other.CreateFlow(FlowAttr{Port: 1, Priority: 1, Specs: specs}))(t)
				b.closes(f)
				b.postRecv(b.qp, RecvWR{SGE: SGE{Addr: m.Addr() + 1024, Length: 256, LKey: m.LKey()}})
				b.postRecv(other, RecvWR{SGE: SGE{Addr: m.Addr() + 2048, Length: 256, LKey: m.LKey()}})
				sent := b.frame(c.to)
				copy(m.Bytes(), sent)
				ends := c.want + c.next
				if c.posts {
					b.post(b.qp, send(m))
					ends++
				} else {
					b.send(sent, 1)
				}
				got := map[uint32]int{}
				for _, wc := range b.succeed(ends) {
					if wc.Opcode == WCRecv {
						got[wc.QPNum]++
						if wc.ByteLen != uint32(len(sent)) {
							t.Errorf("a frame of %d bytes arrived as %d", len(sent), wc.ByteLen)
						}
					}
				}
				for q, want := range map[*QP]int{b.qp: c.want, other: c.next} {
					if got[q.Number()] != want {
						t.Errorf("queue pair %d received %d frames, want %d", q.Number(), got[q.Number()], want)
					}
				}
				for at, want := range map[int]int{1024: c.want, 2048: c.next} {
					if bytes.Equal(m.Bytes()[at:][:len(sent)], sent) != (want == 1) {
						t.Errorf("the buffer at %d has %x", at, m.Bytes()[at:][:len(sent)])
					}
				}
			})
		}
	})
}

// queueSizes reads the sizes of a receive queue, which libmlx5 makes a power of two and has from the kernel.
func queueSizes(t *testing.T) {
	b := newRealData(t, 64)
	q := must(b.pd.CreateQP(QPOptions{Type: QPTRC, SendCQ: b.cq, RecvCQ: b.cq, Cap: QPCap{MaxSendWR: 3, MaxRecvWR: 5, MaxSendSGE: 1, MaxRecvSGE: 3}}))(t)
	b.closes(q)
	if got := must(q.Query(QPAttrCap))(t).Cap; got.MaxRecvWR != 8 || got.MaxRecvSGE != 4 || got.MaxSendWR < 3 {
		t.Errorf("the queues have %+v, want 8 receives of 4 segments", got)
	}
}

// leftCompletions closes a queue pair whose completions are in a ring that MLX5Ring has described. They stay there, and each
// fails the call of Poll that takes it off: docs/embedding.md tells programs to poll them first.
func leftCompletions(t *testing.T) {
	b := newBench(t, newWire(t))
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
