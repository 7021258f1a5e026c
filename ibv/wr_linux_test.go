//go:build cgo

package ibv

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Each operation is checked by its effect on bytes, at both ends.
func TestPostMovesData(t *testing.T) {
	wire := newWire(t)
	for _, c := range []struct {
		name      string
		post      func(m *MR) SendWR
		opcode    WCOpcode // of the sender's completion
		recv      WCOpcode // of the peer's completion, if it has one
		received  bool
		imm       bool
		from, to  int // offsets in m
		inlineToo bool
	}{
		{"SEND", send, WCSend, WCRecv, true, false, 0, 2048, true},
		{"SEND_WITH_IMM", func(m *MR) SendWR { w := send(m); w.Opcode = WRSendWithImm; return w }, WCSend, WCRecv, true, true, 0, 2048, true},
		{"RDMA_WRITE", write, WCRDMAWrite, 0, false, false, 0, 1024, true},
		{"RDMA_WRITE_WITH_IMM", func(m *MR) SendWR { w := write(m); w.Opcode = WRRDMAWriteWithImm; return w }, WCRDMAWrite, WCRecvRDMAWithImm, true, true, 0, 1024, true},
		{"RDMA_READ", read, WCRDMARead, 0, false, false, 1024, 0, false},
	} {
		for _, inline := range []bool{false, true} {
			if inline && !c.inlineToo {
				continue
			}
			t.Run(c.name+map[bool]string{true: " inline"}[inline], func(t *testing.T) {
				b := newData(t, wire, Options{})
				m := b.region()
				mem := m.Bytes()
				x, y := b.rc(nil)
				data := bytes.Repeat([]byte("0123456789abcdef"), 4)
				copy(mem[c.from:], data)
				w := c.post(m)
				w.WRID, w.Imm = 0xfedcba9876543210, 0x12345678
				if inline {
					w.Flags |= SendInline
				}
				n := 1
				if c.received {
					r := recv(m)
					r.WRID = 77
					b.postRecv(y, r)
					n++
				}
				b.post(x, w)
				if inline {
					clear(mem[:64]) // it is free again at once
				}
				for _, wc := range b.succeed(n) {
					switch wc.QPNum {
					case x.Number():
						if wc.WRID != w.WRID || wc.Opcode != c.opcode {
							t.Errorf("the sender's: %+v", wc)
						}
					case y.Number():
						const withImm = 1 << 1 // IBV_WC_WITH_IMM
						if wc.WRID != 77 || wc.Opcode != c.recv || (wc.Flags&withImm != 0) != c.imm || c.imm && wc.ImmData != w.Imm || wc.ByteLen != 64 {
							t.Errorf("the receiver's: %+v", wc)
						}
					}
				}
				if !bytes.Equal(mem[c.to:c.to+64], data) {
					t.Errorf("at %d there is %q", c.to, mem[c.to:c.to+64])
				}
			})
		}
	}
}

// A UD queue pair sends by an address handle, and the GRH has 40 bytes.
func TestPostedDatagramArrivesBehindItsGRH(t *testing.T) {
	b := newData(t, newWire(t), Options{})
	m := b.region()
	x, y := b.queuePair(QPTUD), b.queuePair(QPTUD)
	b.toInit(x)
	b.toInit(y)
	b.connect(x, y)
	ah := must(b.pd.CreateAH(b.address()))(t)
	b.closes(ah)
	copy(m.Bytes(), "a datagram of sixty-four bytes")
	b.postRecv(y, recv(m))
	w := send(m)
	w.AH, w.RemoteQPN, w.RemoteQKey = ah, y.Number(), testQKey
	b.post(x, w)
	for _, wc := range b.succeed(2) {
		if wc.Opcode == WCRecv && (wc.SrcQP != x.Number() || wc.ByteLen != 64+40) {
			t.Errorf("the receiver's completion: %+v", wc)
		}
	}
	if got := m.Bytes()[2048+40:][:64]; !bytes.Equal(got, m.Bytes()[:64]) {
		t.Errorf("behind the GRH there is %q", got)
	}
}

// The send ends after its last retry, and requests behind it are flushed.
func TestSendWithoutAReceiveTakesTheQueuePairToERR(t *testing.T) {
	b := newData(t, newWire(t), Options{})
	m := b.region()
	x, _ := b.rc(nil)
	b.post(x, send(m), write(m))
	wcs := b.completions(2)
	for i, want := range []WCStatus{WCRNRRetryExcErr, WCWRFlushErr} {
		if wcs[i].Status != want {
			t.Errorf("completion %d: %v, want %v", i, wcs[i].Status, want)
		}
	}
	if a := must(x.Query(QPAttrState))(t); a.State != QPSErr {
		t.Errorf("the queue pair is in %v", a.State)
	}
}

// Such a request must never reach a provider, which would follow the pointer. The requests before
// it in the list are sent.
func TestPostRefusesRequestsWithMissingPointers(t *testing.T) {
	b := newData(t, newWire(t), Options{})
	m := b.region()
	other := must(b.ctx.AllocPD())(t)
	b.closes(other)
	ah, foreign := must(b.pd.CreateAH(b.address()))(t), must(other.CreateAH(b.address()))(t)
	b.closes(ah)
	b.closes(foreign)
	closed := must(b.pd.CreateAH(b.address()))(t)
	b.check(closed.Close())
	unregistered := must(b.pd.AllocMR(4096, everyAccess))(t)
	gone := send(unregistered)
	b.check(unregistered.Close())
	rc, peer := b.rc(nil)
	ud := b.queuePair(QPTUD)
	b.toInit(ud)
	b.toRTS(ud, ud)
	datagram := send(m)
	datagram.AH, datagram.RemoteQPN, datagram.RemoteQKey = ah, 0xffff, testQKey // to a queue pair that does not exist
	inline := func(change func(*SendWR)) SendWR {
		w := write(m)
		w.Flags |= SendInline
		change(&w)
		return w
	}
	gone.Flags |= SendInline
	for _, c := range []struct {
		name string
		q    *QP
		wr   SendWR
		good SendWR
		err  error
		says string
	}{
		{"an opcode that does not exist", rc, with(write(m), func(w *SendWR) { w.Opcode = 99 }), write(m), syscall.EINVAL, "opcode 99"},
		{"an atomic, which has another union", rc, with(write(m), func(w *SendWR) { w.Opcode = 5 }), write(m), syscall.EINVAL, "opcode 5"},
		{"a write of a datagram queue pair", ud, with(datagram, func(w *SendWR) { w.Opcode = WRRDMAWrite }), datagram, syscall.EINVAL, "type UD does not post RDMA_WRITE"},
		{"no address handle", ud, with(datagram, func(w *SendWR) { w.AH = nil }), datagram, syscall.EINVAL, "without an address handle"},
		{"an address handle too many", rc, with(write(m), func(w *SendWR) { w.AH = ah }), write(m), syscall.EINVAL, "not UD"},
		{"another domain's address handle", ud, with(datagram, func(w *SendWR) { w.AH = foreign }), datagram, syscall.EINVAL, "another protection domain"},
		{"a closed address handle", ud, with(datagram, func(w *SendWR) { w.AH = closed }), datagram, ErrClosed, "address handle"},
		{"inline before its region", rc, inline(func(w *SendWR) { w.SGE.Addr-- }), write(m), syscall.EINVAL, "outside of its memory region"},
		{"inline beyond its region", rc, inline(func(w *SendWR) { w.SGE.Addr += 4096 - 63 }), write(m), syscall.EINVAL, "outside of its memory region"},
		{"inline of a huge length", rc, inline(func(w *SendWR) { w.SGE.Length = 1<<32 - 1 }), write(m), syscall.EINVAL, "outside of its memory region"},
		{"inline at the end of memory", rc, inline(func(w *SendWR) { w.SGE.Addr = 1<<64 - 1 }), write(m), syscall.EINVAL, "outside of its memory region"},
		{"inline of no region", rc, inline(func(w *SendWR) { w.SGE.LKey ^= 0x80000000 }), inline(func(*SendWR) {}), syscall.EINVAL, "no region has lkey"},
		{"inline of a region that is gone", rc, gone, inline(func(*SendWR) {}), syscall.EINVAL, "no region has lkey"},
		{"an inline read", rc, inline(func(w *SendWR) { w.Opcode = WRRDMARead }), write(m), syscall.EINVAL, "sends none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.wr.WRID = 0xabc
			for _, before := range []int{0, 1, 2, 15, 16, 17} {
				list := append(repeat(before, c.good), c.wr, c.good)
				n, err := c.q.PostSend(list)
				if n != before || !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "wr_id 0xabc") {
					t.Errorf("behind %d good ones: %d, %v", before, n, err)
				}
				b.completions(before)
			}
		})
	}
	if n, err := rc.PostSend(nil); n != 0 || err != nil {
		t.Errorf("posting nothing: %d, %v", n, err)
	}
	b.check(peer.Close())
}

// The error names the request, even if the list takes several calls of the library, and reports a
// full queue.
func TestPostStopsAtTheFirstRefusedRequest(t *testing.T) {
	wire := newWire(t)
	b := newData(t, wire, Options{}, "DELAY", "WQE=3600000000000ns")
	m := b.region()
	x, y := b.rc(nil)
	const before = 7 // not a multiple of postBatch, so the refused request is in the middle of a call
	b.post(x, repeat(before, write(m))...)
	n, err := x.PostSend(repeat(1000, write(m)))
	if n += before; n < 64 || n >= 1000 || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("a send queue of 64 took %d: %v", n, err)
	}
	if wantErrno(t, err, "ibv_post_send", syscall.ENOMEM); !strings.Contains(err.Error(), "send queue is full: poll") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	b.postRecv(y, repeat(before, recv(m))...)
	r, err := y.PostRecv(repeat(1000, recv(m)))
	if r += before; r < 64 || r >= 1000 || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("a receive queue of 64 took %d: %v", r, err)
	}
	if wantErrno(t, err, "ibv_post_recv", syscall.ENOMEM); !strings.Contains(err.Error(), "receive queue is full: poll") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	for _, q := range []*QP{x, y} { // every accepted request is flushed, and no other
		b.check(q.Modify(QPAttr{State: QPSErr}, QPAttrState))
	}
	for _, wc := range b.completions(n + r) {
		if wc.Status != WCWRFlushErr {
			t.Errorf("%v", wc.Status)
		}
	}
}

// Its key may be invalid.
func TestPostOfNoBytesNeedsNoMemory(t *testing.T) {
	b := newData(t, newWire(t), Options{})
	m := b.region()
	x, y := b.rc(nil)
	none := SGE{Addr: 1, LKey: 0xdeadbeef}
	b.postRecv(y, RecvWR{SGE: none}, RecvWR{SGE: none})
	b.post(x, with(write(m), func(w *SendWR) { w.SGE = none }), with(read(m), func(w *SendWR) { w.SGE = none }),
		with(send(m), func(w *SendWR) { w.SGE = none }), with(write(m), func(w *SendWR) { w.Opcode = WRRDMAWriteWithImm }))
	b.succeed(6)
}

func TestPostInTheWrongStateIsRefused(t *testing.T) {
	b := newLibrary(t, newWire(t), "")
	b.reliable = QPTSRD // libefa looks at the state, libmlx5 does not
	b.openDevice("efa_0")
	b.queues()
	m := b.region()
	q := b.queuePair(QPTUD)
	ah := must(b.pd.CreateAH(b.address()))(t)
	b.closes(ah)
	datagram := with(send(m), func(w *SendWR) { w.AH = ah })
	n, err := q.PostSend([]SendWR{datagram})
	if wantErrno(t, err, "ibv_post_send", syscall.EINVAL); n != 0 {
		t.Errorf("posted %d", n)
	}
	n, err = q.PostRecv([]RecvWR{recv(m)})
	if wantErrno(t, err, "ibv_post_recv", syscall.EINVAL); n != 0 {
		t.Errorf("posted %d receives", n)
	}
	b.toInit(q)
	b.postRecv(q, recv(m)) // receives may be posted before any send
	b.check(q.Close())
	if _, err := q.PostSend([]SendWR{datagram}); !errors.Is(err, ErrClosed) {
		t.Errorf("posting to what is closed: %v", err)
	}
	if _, err := q.PostRecv([]RecvWR{recv(m)}); !errors.Is(err, ErrClosed) {
		t.Errorf("posting receives to what is closed: %v", err)
	}
}

func TestPostAllocatesNothing(t *testing.T) {
	b := newData(t, newWire(t), Options{Library: softLibs(t).Shim})
	m, k := b.region(), b.compCntr()
	x, y := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, localOps)) })
	inline := write(m)
	inline.Flags |= SendInline
	sends := append(repeat(17, send(m)), inline, inline)
	recvs, wcs := repeat(17, recv(m)), make([]WC, 36)
	mem := m.Bytes()
	if a := testing.AllocsPerRun(50, func() {
		r, rerr := y.PostRecv(recvs)
		n, serr := x.PostSend(sends)
		if rerr != nil || serr != nil || r != 17 || n != 19 {
			t.Error(r, n, rerr, serr)
		}
		for got := 0; got < 36; {
			more, err := b.cq.Poll(wcs)
			if got += more; err != nil {
				t.Error(err)
			}
		}
		_, err := k.Read()
		_, errErr := k.ReadErr()
		if mem[0]++; err != nil || errErr != nil {
			t.Error(err, errErr)
		}
	}); a != 0 {
		t.Errorf("it allocates %v times", a)
	}
	if !slices.Equal(sends, append(repeat(17, send(m)), inline, inline)) {
		t.Error("posting changed the requests")
	}
}
