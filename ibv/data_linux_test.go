//go:build cgo

package ibv

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
)

// newData is a bench without the queue pair of frames: for those that move data. Options of
// the library are found by path, or "".
func newData(t *testing.T, wire *lab.Wire, o Options, env ...string) *bench {
	t.Helper()
	b := newLibrary(t, wire, o.Library, env...)
	b.lib.opts.MLX5, b.lib.opts.EFA = o.MLX5, o.EFA
	b.open()
	b.queues()
	return b
}

// queues makes the protection domain and the completion queue.
func (b *bench) queues() {
	b.t.Helper()
	b.pd = must(b.ctx.AllocPD())(b.t)
	b.closes(b.pd)
	b.cq = must(b.ctx.CreateCQ(CQOptions{CQE: 256}))(b.t)
	b.closes(b.cq)
}

// pair makes a reliable queue pair in RESET.
func (b *bench) pair() *QP {
	b.t.Helper()
	return b.queuePair(cmp.Or(b.reliable, QPTRC))
}

// everyAccess is the access allowed by the tests' regions and queue pairs.
const everyAccess = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead

// region is a memory region of 4 KiB.
func (b *bench) region() *MR {
	b.t.Helper()
	m := must(b.pd.AllocMR(4096, everyAccess))(b.t)
	b.closes(m)
	return m
}

// sge is the first n bytes of m.
func sge(m *MR, n uint32) SGE { return SGE{Addr: m.Addr(), Length: n, LKey: m.LKey()} }

// dataCap has room for all requests that a test posts at once.
var dataCap = QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}

// queuePair makes a queue pair in RESET; a request chooses whether its send is signalled.
func (b *bench) queuePair(typ QPType) *QP {
	b.t.Helper()
	size := dataCap
	if b.reliable == QPTSRD { // the largest of an EFA
		size.MaxInlineData = 32
	}
	q := must(b.pd.CreateQP(QPOptions{Type: typ, SendCQ: b.cq, RecvCQ: b.cq, Cap: size}))(b.t)
	b.closes(q)
	return q
}

const testQKey = 0x11111111

// toInit brings q from RESET to INIT.
func (b *bench) toInit(q *QP) {
	b.t.Helper()
	a := QPAttr{State: QPSInit, PortNum: 1, AccessFlags: everyAccess, QKey: testQKey}
	b.check(q.Modify(a, needed(q.typ, QPSInit)))
}

// toRTS brings q from INIT to RTS, connected to peer where its type connects.
func (b *bench) toRTS(q, peer *QP) {
	b.t.Helper()
	b.check(q.Modify(b.way(QPSRTR, q, peer), needed(q.typ, QPSRTR)))
	b.check(q.Modify(b.way(QPSRTS, q, peer), needed(q.typ, QPSRTS)))
}

// way is the attributes of q on its way to a state.
func (b *bench) way(to QPState, q, peer *QP) QPAttr {
	return QPAttr{
		State: to, PathMTU: MTU1024, DestQPNum: peer.number, RQPSN: peer.number & 0xffffff, SQPSN: q.number & 0xffffff,
		AH: b.address(), MaxRdAtomic: 1, MaxDestRdAtomic: 1, MinRNRTimer: 12, Timeout: 1, RetryCnt: 1, RNRRetry: 0,
	}
}

// address is the way to the device itself.
func (b *bench) address() AHAttr {
	b.t.Helper()
	gid := must(b.ctx.QueryGID(1, 0))(b.t)
	return AHAttr{GRH: GlobalRoute{DGID: gid, HopLimit: 64}, IsGlobal: true, PortNum: 1}
}

// connect brings two queue pairs of one type from INIT to RTS, to each other.
func (b *bench) connect(x, y *QP) {
	b.t.Helper()
	b.toRTS(x, y)
	b.toRTS(y, x)
	if x.typ == QPTSRD {
		b.meet(x, y)
	}
}

// meet has x and y, of type SRD, send to each other: each request names its destination.
func (b *bench) meet(x, y *QP) {
	b.t.Helper()
	if b.ah == nil {
		b.ah, b.peers = must(b.pd.CreateAH(b.address()))(b.t), make(map[*QP]*QP)
		b.closes(b.ah)
	}
	b.peers[x], b.peers[y] = y, x
}

// rc is two connected reliable queue pairs, with the counters of attach in INIT.
func (b *bench) rc(attach func(x, y *QP)) (x, y *QP) {
	b.t.Helper()
	x, y = b.pair(), b.pair()
	b.toInit(x)
	b.toInit(y)
	if attach != nil {
		attach(x, y)
	}
	b.connect(x, y)
	return x, y
}

// post posts the requests and checks that the library accepts every one.
func (b *bench) post(q *QP, wrs ...SendWR) {
	b.t.Helper()
	if q.typ == QPTSRD {
		wrs = slices.Clone(wrs)
		for i := range wrs {
			wrs[i].AH, wrs[i].RemoteQPN, wrs[i].RemoteQKey = b.ah, b.peers[q].number, testQKey
		}
	}
	if n, err := q.PostSend(wrs); err != nil || n != len(wrs) {
		b.t.Fatalf("posted %d of %d: %v", n, len(wrs), err)
	}
}

func (b *bench) postRecv(q *QP, wrs ...RecvWR) {
	b.t.Helper()
	if n, err := q.PostRecv(wrs); err != nil || n != len(wrs) {
		b.t.Fatalf("posted %d of %d receives: %v", n, len(wrs), err)
	}
}

// completions waits for n completions and returns them in order.
func (b *bench) completions(n int) []WC {
	b.t.Helper()
	all := make([]WC, n+1)
	got := 0
	for deadline := time.Now().Add(20 * time.Second); got < n; {
		more, err := b.cq.Poll(all[got:n])
		b.check(err)
		if got += more; got < n && time.Now().After(deadline) {
			b.t.Fatalf("%d completions of %d within 20 s: %+v", got, n, all[:got])
		}
	}
	if more, err := b.cq.Poll(all[n:]); err != nil || more != 0 {
		b.t.Fatalf("more than %d completions (%v): %+v", n, err, all)
	}
	return all[:n]
}

// succeed polls n completions and requires all to have succeeded.
func (b *bench) succeed(n int) []WC {
	b.t.Helper()
	all := b.completions(n)
	for _, wc := range all {
		if wc.Status != WCSuccess {
			b.t.Fatalf("a completion: %v: %+v", wc.Status, wc)
		}
	}
	return all
}

// compCntr makes a completion counter. Counters of queue pairs are made before the queue pair.
func (b *bench) compCntr() *CompCntr {
	b.t.Helper()
	k := must(b.ctx.CreateCompCntr(CompCntrOptions{}))(b.t)
	b.closes(k)
	return k
}

// counts wants the two values of k.
func (b *bench) counts(k *CompCntr, comp, err uint64) {
	b.t.Helper()
	c, e := must(k.Read())(b.t), must(k.ReadErr())(b.t)
	if c != comp || e != err {
		b.t.Fatalf("the counter reads %d and %d errors, want %d and %d", c, e, comp, err)
	}
}

// Requests of x, for peer memory m.
func send(m *MR) SendWR { return SendWR{Opcode: WRSend, Flags: SendSignaled, SGE: sge(m, 64)} }
func write(m *MR) SendWR {
	return SendWR{Opcode: WRRDMAWrite, Flags: SendSignaled, SGE: sge(m, 64), RemoteAddr: m.Addr() + 1024, RKey: m.RKey()}
}
func read(m *MR) SendWR {
	return SendWR{Opcode: WRRDMARead, Flags: SendSignaled, SGE: sge(m, 64), RemoteAddr: m.Addr() + 1024, RKey: m.RKey()}
}
func recv(m *MR) RecvWR {
	return RecvWR{SGE: SGE{Addr: m.Addr() + 2048, Length: 1024, LKey: m.LKey()}}
}

// repeat is n times v.
func repeat[T any](n int, v T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = v
	}
	return list
}
