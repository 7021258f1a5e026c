//go:build releases && cgo

package ibv

import (
	"errors"
	"testing"
	"time"

	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// collapsedRig is a DevX queue pair whose completion queues are one entry each, connected to a queue pair of the verbs,
// whose completion queue the test polls.
type collapsedRig struct {
	*bench
	dx             *DevX
	mr             *MR // of the DevX queue pair
	qp             *DevXQP
	sends, recvs   *flexio.Collapsed
	peer           *QP
	peerMR         *MR
	sendCQ, recvCQ *DevXCQ
	sendEntry      func() []byte
}

// collapsedQueue makes a collapsed completion queue, and what counts it.
func (r *collapsedRig) collapsedQueue(uar *UAR, eqn uint32) (*DevXCQ, *flexio.Collapsed) {
	r.t.Helper()
	u := must(r.dx.AllocUMEM(128))(r.t)
	r.closes(u)
	c := must(flexio.NewCollapsed(u.Bytes()[:64], flexio.CollapsedOptions{}))(r.t)
	c.Init()
	cq := must(r.dx.CreateCQ(DevXCQOptions{UMEM: u, Doorbell: 64, UAR: uar, EQN: eqn, Collapsed: true, IgnoreOverrun: true}))(r.t)
	r.closes(cq)
	return cq, c
}

const (
	rigDepth = 256
	rigPSN   = 7
)

func newCollapsedRig(t *testing.T) *collapsedRig {
	r := &collapsedRig{bench: newRealData(t, 2*rigDepth)}
	r.dx = must(r.ctx.DevX())(t)
	r.closes(r.dx)
	uar := must(r.dx.AllocUAR())(t)
	r.closes(uar)
	eqn := must(r.dx.QueryEQN(0))(t)
	pd := must(r.dx.AllocPD())(t)
	r.closes(pd)
	r.mr = must(pd.AllocMR(8192, AccessLocalWrite|AccessRemoteWrite))(t)
	r.closes(r.mr)
	r.peerMR = must(r.pd.AllocMR(8192, AccessLocalWrite|AccessRemoteWrite))(t)
	r.closes(r.peerMR)

	r.sendCQ, r.sends = r.collapsedQueue(uar, eqn)
	r.sendEntry = r.sendCQ.umem.Bytes
	r.recvCQ, r.recvs = r.collapsedQueue(uar, eqn)
	r.qp = must(r.dx.CreateQP(pd, DevXQPOptions{SendCQ: r.sendCQ, RecvCQ: r.recvCQ, UAR: uar, MaxSendWR: rigDepth, MaxRecvWR: rigDepth}))(t)
	r.closes(r.qp)
	r.peer = must(r.pd.CreateQP(QPOptions{Type: QPTRC, SendCQ: r.cq, RecvCQ: r.cq, SignalAll: true,
		Cap: QPCap{MaxSendWR: rigDepth, MaxRecvWR: rigDepth, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	r.closes(r.peer)
	r.connect()
	return r
}

type modifier interface {
	Modify(a QPAttr, mask QPAttrMask) error
	Number() uint32
}

func (r *collapsedRig) connect() {
	r.t.Helper()
	gid := must(r.ctx.QueryGID(1, 0))(r.t)
	way := AHAttr{IsGlobal: true, PortNum: 1, GRH: GlobalRoute{DGID: gid, HopLimit: 64}}
	both := []modifier{r.qp, r.peer}
	for i, q := range both {
		to := both[1-i].Number()
		r.check(q.Modify(QPAttr{State: QPSInit, PortNum: 1, AccessFlags: AccessRemoteWrite}, QPAttrState|QPAttrPort|QPAttrPKeyIndex|QPAttrAccessFlags))
		r.check(q.Modify(QPAttr{State: QPSRTR, PathMTU: MTU4096, DestQPNum: to, RQPSN: rigPSN, MaxDestRdAtomic: 1, MinRNRTimer: 12, AH: way},
			QPAttrState|QPAttrAV|QPAttrPathMTU|QPAttrDestQPN|QPAttrRQPSN|QPAttrMaxDestRdAtomic|QPAttrMinRNRTimer))
		r.check(q.Modify(QPAttr{State: QPSRTS, SQPSN: rigPSN, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
			QPAttrState|QPAttrSQPSN|QPAttrTimeout|QPAttrRetryCnt|QPAttrRNRRetry|QPAttrMaxQPRdAtomic))
	}
}

// sample frees what has completed and returns the counts.
func (r *collapsedRig) sample() (sends, recvs flexio.Count) {
	s := r.sends.SampleUpTo(func() uint64 { n, _ := r.qp.Posted(); return n })
	v := r.recvs.SampleUpTo(func() uint64 { _, n := r.qp.Posted(); return n })
	r.qp.Free(s.Completed, v.Completed)
	return s, v
}

// within calls ready until it is true.
func within(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ready(); time.Sleep(10 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after 2 minutes: no %s", what)
		}
	}
}

// The counts of both collapsed queues equal what ibv_poll_cq returns at the other end, over three releases, and no
// operation is lost although nobody moves a consumer index.
func TestKernelCollapsedQueueCountsAsPollDoes(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		t.Run("100,000 writes", writesOfCollapsedQueue)
		t.Run("receives", receivesOfCollapsedQueue)
		t.Run("errors", errorsOfCollapsedQueue)
		t.Run("overrun", overrunOfCollapsedQueue)
		t.Run("refusals", refusalsOfDevXQueues)
	})
}

func writesOfCollapsedQueue(t *testing.T) {
	r := newCollapsedRig(t)
	const count = 100_000
	write := SendWR{Opcode: WRRDMAWrite, SGE: SGE{Addr: r.mr.Addr(), Length: 64, LKey: r.mr.LKey()}, RemoteAddr: r.peerMR.Addr(), RKey: r.peerMR.RKey()}
	back := SendWR{Opcode: WRRDMAWrite, SGE: SGE{Addr: r.peerMR.Addr(), Length: 64, LKey: r.peerMR.LKey()}, RemoteAddr: r.mr.Addr() + 4096, RKey: r.mr.RKey()}
	posted, backs, polled := 0, 0, 0
	wrs := make([]SendWR, rigDepth)
	var wc [64]WC
	within(t, "end of the writes", func() bool {
		done, _ := r.sample()
		if done.Ambiguous || done.Errors > 0 {
			t.Fatalf("after %d writes: %+v", posted, done)
		}
		n := min(rigDepth-(posted-int(done.Completed)), count-posted)
		for i := range wrs[:n] {
			wrs[i] = write
		}
		got := must(r.qp.PostSend(wrs[:n]))(t)
		posted += got
		k := must(r.cq.Poll(wc[:]))(t)
		for _, c := range wc[:k] {
			if c.Status != WCSuccess {
				t.Fatalf("the peer's write ends with %v", c.Status)
			}
		}
		polled += k
		n = min(rigDepth-(backs-polled), count-backs)
		for i := range wrs[:n] {
			wrs[i] = back
		}
		backs += must(r.peer.PostSend(wrs[:n]))(t)
		return int(done.Completed) == count && polled == count
	})
	done, _ := r.sample()
	t.Logf("%d writes by the collapsed queue, %d by ibv_poll_cq", done.Completed, polled)
	if done.Completed != uint64(polled) {
		t.Errorf("the collapsed queue counts %d, ibv_poll_cq %d", done.Completed, polled)
	}
}

// receivesOfCollapsedQueue has the peer send.
func receivesOfCollapsedQueue(t *testing.T) {
	r := newCollapsedRig(t)
	const count = 3000
	send := SendWR{Opcode: WRSend, SGE: SGE{Addr: r.peerMR.Addr(), Length: 64, LKey: r.peerMR.LKey()}}
	recv := RecvWR{SGE: SGE{Addr: r.mr.Addr(), Length: 4096, LKey: r.mr.LKey()}}
	sent, polled, receives := 0, 0, 0
	var wc [64]WC
	within(t, "end of the messages", func() bool {
		_, got := r.sample()
		for receives-int(got.Completed) < rigDepth {
			must(r.qp.PostRecv([]RecvWR{recv}))(t)
			receives++
		}
		polled += must(r.cq.Poll(wc[:]))(t)
		for sent < count && sent-polled < 64 {
			must(r.peer.PostSend([]SendWR{send}))(t)
			sent++
		}
		return polled == count && int(got.Completed) == count
	})
}

// errorsOfCollapsedQueue has a write to memory that is not the peer's fail. The entry shows an error, and the index of the last
// request that was flushed: which of them succeeded before is in no entry.
func errorsOfCollapsedQueue(t *testing.T) {
	r := newCollapsedRig(t)
	good := SendWR{Opcode: WRRDMAWrite, SGE: SGE{Addr: r.mr.Addr(), Length: 64, LKey: r.mr.LKey()}, RemoteAddr: r.peerMR.Addr(), RKey: r.peerMR.RKey()}
	bad := good
	bad.RKey ^= 0x100
	must(r.qp.PostSend([]SendWR{good, good}))(t)
	within(t, "the first two", func() bool { s, _ := r.sample(); return s.Completed == 2 && s.Errors == 0 })
	must(r.qp.PostSend([]SendWR{bad}))(t)
	within(t, "the error", func() bool { s, _ := r.sample(); return s.Completed == 3 })
	s, _ := r.sample()
	if s.Errors != 1 || s.Last == nil || s.Last.Syndrome != 0x13 {
		t.Errorf("after the error: %+v, %v", s, s.Last)
	}
	within(t, "state ERR", func() bool { return must(r.qp.Query(QPAttrState))(t).State == QPSErr })
	must(r.qp.PostSend([]SendWR{good, good, good}))(t)
	within(t, "the flushed ones", func() bool { s, _ := r.sample(); return s.Completed == 6 })
	if s, _ := r.sample(); s.Last.Syndrome != flexio.SyndromeWRFlush || s.Ambiguous {
		t.Errorf("after the flush: %+v, %v", s, s.Last)
	}
	r.check(r.qp.Modify(QPAttr{State: QPSReset}, QPAttrState))
	if got := must(r.qp.Query(QPAttrState))(t).State; got != QPSReset {
		t.Errorf("state %v after RESET", got)
	}
	if sends, receives := r.qp.Posted(); sends != 0 || receives != 0 {
		t.Errorf("after RESET %d sends and %d receives are posted", sends, receives)
	}
}

// overrunOfCollapsedQueue: without oi a collapsed queue fails as soon as its entries are used up.
func overrunOfCollapsedQueue(t *testing.T) {
	r := newCollapsedRig(t)
	for _, c := range []struct {
		name   string
		ignore bool
		want   QPState
	}{{"ignored", true, QPSRTS}, {"not ignored", false, QPSErr}} {
		uar := must(r.dx.AllocUAR())(t)
		u := must(r.dx.AllocUMEM(128))(t)
		pd := must(r.dx.AllocPD())(t)
		mr := must(pd.AllocMR(4096, AccessLocalWrite|AccessRemoteWrite))(t)
		cq := must(r.dx.CreateCQ(DevXCQOptions{UMEM: u, Doorbell: 64, UAR: uar, EQN: must(r.dx.QueryEQN(0))(t), Collapsed: true, IgnoreOverrun: c.ignore}))(t)
		qp := must(r.dx.CreateQP(pd, DevXQPOptions{SendCQ: cq, RecvCQ: cq, UAR: uar, MaxSendWR: 16, MaxRecvWR: 1}))(t)
		if err := cq.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("closing a queue in use: %v", err)
		}
		one := &collapsedRig{bench: r.bench, qp: qp}
		one.peer = must(r.pd.CreateQP(QPOptions{Type: QPTRC, SendCQ: r.cq, RecvCQ: r.cq, Cap: QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
		one.connect()
		write := SendWR{Opcode: WRRDMAWrite, SGE: SGE{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}, RemoteAddr: r.peerMR.Addr(), RKey: r.peerMR.RKey()}
		must(qp.PostSend([]SendWR{write, write, write, write}))(t)
		if c.ignore {
			within(t, "four writes", func() bool { b := u.Bytes(); return b[60] == 0 && b[61] == 3 })
		} else {
			within(t, "the overrun", func() bool { return must(qp.Query(QPAttrState))(t).State == QPSErr })
		}
		if got := must(qp.Query(QPAttrState))(t).State; got != c.want {
			t.Errorf("overrun %s: state %v, want %v", c.name, got, c.want)
		}
		for range 2 { // idempotent
			for _, o := range []interface{ Close() error }{qp, cq, u, uar, mr, pd, one.peer} {
				if err := o.Close(); err != nil {
					t.Errorf("closing: %v", err)
				}
			}
		}
		if _, err := qp.PostSend([]SendWR{write}); !errors.Is(err, ErrClosed) {
			t.Errorf("posting to a closed queue pair: %v", err)
		}
	}
}

// refusalsOfDevXQueues: firmware's and our own refusals are errors of the verb, and leave no object.
func refusalsOfDevXQueues(t *testing.T) {
	r := newCollapsedRig(t)
	uar := must(r.dx.AllocUAR())(t)
	r.closes(uar)
	u := must(r.dx.AllocUMEM(4096))(t)
	r.closes(u)
	eqn := must(r.dx.QueryEQN(0))(t)
	for name, o := range map[string]DevXCQOptions{
		"no umem":                 {UAR: uar, EQN: eqn},
		"no such event queue":     {UMEM: u, Doorbell: 64, UAR: uar, EQN: 200},
		"a ring beyond the umem":  {UMEM: u, Doorbell: 64, UAR: uar, EQN: eqn, LogSize: 20},
		"a record beyond the end": {UMEM: u, Doorbell: 4096, UAR: uar, EQN: eqn},
		"too high an event queue": {UMEM: u, Doorbell: 64, UAR: uar, EQN: 256},
	} {
		if q, err := r.dx.CreateCQ(o); err == nil {
			t.Errorf("%s: made queue %d", name, q.Number())
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	if _, err := r.dx.QueryEQN(99); err == nil {
		t.Error("vector 99 has an event queue")
	}
	if _, err := r.dx.CreateQP(r.pd, DevXQPOptions{SendCQ: r.sendCQ, RecvCQ: r.recvCQ, UAR: uar}); err == nil {
		t.Error("a queue pair in a domain of the other context")
	}
	if err := r.qp.Modify(QPAttr{State: QPSRTS}, QPAttrState); err == nil {
		t.Error("RTS without its attributes")
	}
	if err := r.qp.Modify(QPAttr{State: QPSSQD}, QPAttrState); err == nil {
		t.Error("a transition to SQD")
	}
	full := make([]SendWR, rigDepth+1)
	for i := range full {
		full[i] = SendWR{Opcode: WRRDMAWrite, SGE: SGE{Addr: r.mr.Addr(), Length: 1, LKey: r.mr.LKey()}, RemoteAddr: r.peerMR.Addr(), RKey: r.peerMR.RKey()}
	}
	if n, err := r.qp.PostSend(full); n != rigDepth || err == nil {
		t.Errorf("%d requests were posted to a queue of %d: %v", n, rigDepth, err)
	}
	if n, err := r.qp.PostSend([]SendWR{{Opcode: WRSend, Flags: SendInline}}); n != 0 || err == nil {
		t.Errorf("inline data: %d, %v", n, err)
	}
	within(t, "their end", func() bool { s, _ := r.sample(); return s.Completed == rigDepth })
}
