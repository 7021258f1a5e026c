//go:build releases && cgo

package ibv

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
	"github.com/flowtally/flowtally/probe"
)

// newEFA is a bench of the EFA that the uverbs kernel in software has, over the real libraries of a release. Its reliable queue
// pairs are of type SRD.
func newEFA(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, reliable: QPTSRD}
	b.lib = must(Load(Options{}))(t)
	b.closes(b.lib)
	b.open()
	b.queues()
	return b
}

// It posts every operation known to the builders, and checks the statuses of errors and the states in which a queue
// pair flushes.
func TestKernelEFAMovesDataByUDAndSRD(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		t.Run("srd", srdOperations)
		t.Run("errors", srdErrors)
		t.Run("ud", udOperations)
		t.Run("sender", efaSender)
		t.Run("refused", efaRefusals)
	})
}

func srdOperations(t *testing.T) {
	b := newEFA(t)
	ops := []WROpcode{WRSend, WRSendWithImm}
	attr := must(b.ctx.QueryEFA())(t)
	if !attr.RDMARead || attr.MaxRDMASize != 1<<30 || !attr.RDMAWrite && b.lib.has("ibv_create_comp_cntr") {
		t.Errorf("the device has %+v", attr)
	}
	if attr.RDMAWrite { // libefa 44 does not know it
		ops = append(ops, WRRDMAWrite, WRRDMAWriteWithImm)
	}
	ops = append(ops, WRRDMARead) // the last: it overwrites the message
	t.Logf("%+v: %v", attr, ops)
	m := b.region()
	x, y := b.rc(nil)
	text := []byte("sixty-four bytes of a message that goes by a reliable datagram .")
	copy(m.Bytes(), text)
	for i, op := range ops {
		copy(m.Bytes()[1024:], bytes.Repeat([]byte{byte(i)}, 64))
		clear(m.Bytes()[2048:3072])
		w := write(m)
		w.Opcode, w.Imm, w.WRID = op, 0xabcd1234, 100
		receives := op == WRSend || op == WRSendWithImm || op == WRRDMAWriteWithImm
		if receives {
			r := recv(m)
			r.WRID = 7
			b.postRecv(y, r)
		}
		b.post(x, w)
		n := 1
		if receives {
			n = 2
		}
		for _, wc := range b.succeed(n) {
			switch {
			case wc.QPNum == x.Number() && wc.WRID == 100:
			case receives && wc.QPNum == y.Number() && wc.WRID == 7 && wc.ByteLen == 64 && wc.SrcQP == x.Number() && (op == WRSend || wc.ImmData == 0xabcd1234):
			default:
				t.Errorf("%v: %+v", op, wc)
			}
		}
		at := map[WROpcode]int{WRSend: 2048, WRSendWithImm: 2048, WRRDMAWrite: 1024, WRRDMAWriteWithImm: 1024, WRRDMARead: 0}[op]
		want := text
		if op == WRRDMARead {
			want = bytes.Repeat([]byte{byte(i)}, 64)
		}
		if got := m.Bytes()[at:][:64]; !bytes.Equal(got, want) {
			t.Errorf("%v moved %q", op, got)
		}
	}
}

func srdErrors(t *testing.T) {
	b := newEFA(t)
	m := b.region()
	x, y := b.rc(nil)
	badAddress := WCRemAccessErr
	if !must(b.ctx.QueryEFA())(t).RDMAWrite { // libefa 44 does not know this status of the card
		badAddress = WCGeneralErr
	}
	for _, c := range []struct {
		name string
		do   func(*SendWR)
		want WCStatus
	}{
		{"a wrong remote key", func(w *SendWR) { w.RKey += 0x1000 }, badAddress},
		{"past the end of the region", func(w *SendWR) { w.RemoteAddr = m.Addr() + 4096 - 32 }, badAddress},
		{"a wrong local key", func(w *SendWR) { w.SGE.LKey += 0x1000 }, WCLocProtErr},
	} {
		w := read(m)
		c.do(&w)
		b.post(x, w, read(m)) // after an error the queue pair must still be in RTS
		for i, wc := range b.completions(2) {
			if want := []WCStatus{c.want, WCSuccess}[i]; wc.Status != want {
				t.Errorf("%s: completion %d is %v, want %v", c.name, i, wc.Status, want)
			}
		}
	}
	short := recv(m)
	short.SGE.Length = 63
	b.postRecv(y, short)
	b.post(x, send(m))
	for _, wc := range b.completions(2) {
		if want := map[uint32]WCStatus{x.Number(): WCRemInvReqErr, y.Number(): WCLocLenErr}[wc.QPNum]; wc.Status != want {
			t.Errorf("a receive that is too short: %+v, want %v", wc, want)
		}
	}
	b.postRecv(y, recv(m), recv(m))
	b.check(y.Modify(QPAttr{State: QPSErr}, QPAttrState))
	b.post(x, send(m)) // the peer's queue pair does not receive any more
	statuses := map[WCStatus]int{}
	for _, wc := range b.completions(3) {
		statuses[wc.Status]++
	}
	if statuses[WCWRFlushErr] != 2 || len(statuses) != 2 {
		t.Errorf("a queue pair in ERR and its sender: %v", statuses)
	}
}

// efaSender reads the number of the sender's address handle, by which libfabric finds the sender. Before the receiver makes a
// handle for the sender, a completion has none.
func efaSender(t *testing.T) {
	b := newEFA(t)
	m := b.region()
	receiver := b.queuePair(QPTUD)
	other := must(b.ctx.AllocPD())(t)
	b.closes(other)
	ah := must(other.CreateAH(b.address()))(t)
	far := must(other.CreateQP(QPOptions{Type: QPTUD, SendCQ: b.cq, RecvCQ: b.cq, Cap: smallCap}))(t)
	b.toInit(far)
	b.toInit(receiver)
	b.connect(far, receiver)
	mr := must(other.AllocMR(4096, everyAccess))(t)
	exchange := func() uint16 {
		b.postRecv(receiver, recv(m))
		w := send(mr)
		w.AH, w.RemoteQPN, w.RemoteQKey = ah, receiver.Number(), testQKey
		b.post(far, w)
		slid := uint16(0)
		for _, wc := range b.succeed(2) {
			if wc.QPNum == receiver.Number() {
				slid = wc.SLID
			}
		}
		return slid
	}
	if got := exchange(); got != 0xffff {
		t.Errorf("an unknown sender has the handle %#x", got)
	}
	first := must(b.pd.CreateAH(b.address()))(t)
	known := exchange()
	if known == 0xffff {
		t.Error("a known sender has no handle")
	}
	second := must(b.pd.CreateAH(b.address()))(t)
	b.check(first.Close())
	if got := exchange(); got != known {
		t.Errorf("a second handle for the sender has the number %#x, the first %#x", got, known)
	}
	b.check(second.Close())
	if got := exchange(); got != 0xffff {
		t.Errorf("after the last handle for it the sender has the handle %#x", got)
	}
	for _, o := range []interface{ Close() error }{mr, far, ah} {
		b.check(o.Close())
	}
}

func udOperations(t *testing.T) {
	b := newEFA(t)
	m := b.region()
	x, y := b.queuePair(QPTUD), b.queuePair(QPTUD)
	b.toInit(x)
	b.toInit(y)
	b.connect(x, y)
	ah := must(b.pd.CreateAH(b.address()))(t)
	b.closes(ah)
	w := send(m)
	w.AH, w.RemoteQPN, w.RemoteQKey = ah, y.Number(), testQKey
	lost := w
	lost.RemoteQKey++
	b.post(x, w) // there is no receive: a datagram is lost
	b.succeed(1)
	b.postRecv(y, recv(m))
	b.post(x, lost, w)
	received := 0
	for _, wc := range b.succeed(3) {
		if wc.QPNum == y.Number() {
			if received++; wc.ByteLen != 40+64 {
				t.Errorf("received %+v", wc)
			}
		}
	}
	if received != 1 {
		t.Errorf("received %d", received)
	}
	if _, err := x.PostSend([]SendWR{write(m)}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a write by datagrams: %v", err)
	}
}

// efaRefusals are calls refused by libefa or the driver.
func efaRefusals(t *testing.T) {
	b := newEFA(t)
	for _, c := range []struct {
		typ  QPType
		cap  QPCap
		want syscall.Errno
	}{
		{QPTRC, QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}, syscall.EOPNOTSUPP},
		{QPTSRD, QPCap{MaxSendWR: 1 << 20, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}, syscall.EINVAL},
		{QPTUD, QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 3, MaxRecvSGE: 1}, syscall.EINVAL},
		{QPTUD, QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 4096}, syscall.EINVAL},
	} {
		if q, err := b.pd.CreateQP(QPOptions{Type: c.typ, SendCQ: b.cq, RecvCQ: b.cq, Cap: c.cap}); q != nil || !errors.Is(err, c.want) {
			t.Errorf("a queue pair of type %v with %+v: %v, want %v", c.typ, c.cap, err, c.want)
		}
	}
	q := b.queuePair(QPTSRD)
	if err := q.Modify(QPAttr{State: QPSRTR}, QPAttrState); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("from RESET to RTR: %v", err)
	}
	if n, err := q.PostSend([]SendWR{send(b.region())}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a datagram without an address handle: %d, %v", n, err)
	}
	mlx5 := must(b.lib.Open("mlx5_0"))(t)
	b.closes(mlx5)
	var u *probe.UnsupportedError
	if _, err := mlx5.QueryEFA(); !errors.As(err, &u) || u.Object != "mlx5_0" || !strings.Contains(u.Fix, "EFA device") {
		t.Errorf("libefa on an mlx5 device: %v: %+v", err, u)
	}
}
