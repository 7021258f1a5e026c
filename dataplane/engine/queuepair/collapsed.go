package queuepair

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/probe"
)

// statusUnknown is the status of an operation that has ended, and whose result no entry shows. It is none of enum
// ibv_wc_status.
const statusUnknown ibv.WCStatus = 1 << 16

// collapsedPair is a queue pair of an mlx5 device, made by DevX because ibv_create_qp takes no collapsed completion queue.
// The completion queue of its sends is one entry, whose index tells how many have ended. Its receives have an ordinary
// ring: their errors come all at once, when a connection ends, and a single entry would only show the last.
//
// poll makes completions of both, so the worker counts and posts as with any queue pair. The worker is the producer, so
// the index of 16 bits is exact however late poll comes.
//
// An error ends the collapse, because each entry overwrites the one before. If the entry shows the cause, then everything
// before it has succeeded. If it shows a flush, the cause was overwritten, and nobody can tell which of the operations since
// the last poll succeeded: they get statusUnknown, and the worker declares them.
type collapsedPair struct {
	*ibv.DevXQP
	closers []interface{ Close() error } // in the order of closing

	depth uint64
	ids   []uint64 // wr_ids of the outstanding sends, by number mod depth

	sendMem  []byte // the entry
	sends    *flexio.Collapsed
	posted   func() uint64 // the producer index of the sends
	recvCQ   *ibv.DevXCQ
	recvs    *flexio.Ring
	received uint64 // completed receives since the last RESET
	entry    flexio.CQE64

	// The sends since the last RESET, by number: okEnd <= failBegin <= ended, and polled <= ended.
	polled    uint64
	okEnd     uint64 // those before it succeeded
	failBegin uint64 // those from here on failed; between the two the result is unknown
	ended     uint64
	failed    bool
	cause     ibv.WCStatus // of the first failure that the entry has shown
}

// entryBytes is the size of an entry of a completion queue. The doorbell record lies behind the ring.
const entryBytes = 64

// newCollapsedPair makes the queue pair and its completion queues.
func newCollapsedPair(dx *ibv.DevX, pd *ibv.PD, sendDepth, receives int) (_ *collapsedPair, err error) {
	p := &collapsedPair{depth: uint64(sendDepth), ids: make([]uint64, sendDepth)}
	p.posted = func() uint64 { n, _ := p.Posted(); return n }
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()

	uar, err := dx.AllocUAR()
	if err != nil {
		return nil, err
	}
	p.closesFirst(uar)
	eqn, err := dx.QueryEQN(0)
	if err != nil {
		return nil, err
	}

	// Each completion queue: memory, its first content, the queue.
	queue := func(log int, collapsed bool, first func(mem []byte) error) (*ibv.DevXCQ, error) {
		size := entryBytes << log
		umem, err := dx.AllocUMEM(size + 8)
		if err != nil {
			return nil, err
		}
		p.closesFirst(umem)
		if err := first(umem.Bytes()[:size]); err != nil {
			return nil, err
		}
		cq, err := dx.CreateCQ(ibv.DevXCQOptions{
			UMEM: umem, Doorbell: uint64(size), UAR: uar, EQN: eqn, LogSize: uint8(log), Collapsed: collapsed, IgnoreOverrun: collapsed,
		})
		if err == nil {
			p.closesFirst(cq)
		}
		return cq, err
	}
	sendCQ, err := queue(0, true, func(mem []byte) error {
		p.sendMem = mem
		return p.restart()
	})
	if err != nil {
		return nil, err
	}
	// The ring has an entry for every receive that can be outstanding, as the one of createQueues.
	p.recvCQ, err = queue(bits.Len(uint(receives)), false, func(mem []byte) (err error) {
		if p.recvs, err = flexio.NewRing(mem, flexio.RingOptions{EntrySize: entryBytes}); err == nil {
			p.recvs.Init()
		}
		return err
	})
	if err != nil {
		return nil, err
	}

	p.DevXQP, err = dx.CreateQP(pd, ibv.DevXQPOptions{SendCQ: sendCQ, RecvCQ: p.recvCQ, UAR: uar, MaxSendWR: sendDepth, MaxRecvWR: receives})
	if err == nil {
		p.closesFirst(p.DevXQP)
	}
	return p, err
}

// closesFirst has Close close o before everything made earlier.
func (p *collapsedPair) closesFirst(o interface{ Close() error }) {
	p.closers = append([]interface{ Close() error }{o}, p.closers...)
}

// Close destroys the queue pair, and then its completion queues and their memory.
func (p *collapsedPair) Close() error {
	var errs []error
	for _, o := range p.closers {
		errs = append(errs, o.Close())
	}
	return errors.Join(errs...)
}

// restart begins to count at 0, as the device does after RESET.
func (p *collapsedPair) restart() (err error) {
	p.sends, err = flexio.NewCollapsed(p.sendMem, flexio.CollapsedOptions{Depth: uint32(p.depth)})
	if err != nil {
		return err
	}
	p.sends.Init()
	p.polled, p.okEnd, p.failBegin, p.ended, p.received = 0, 0, 0, 0, 0
	p.failed = false
	p.cause = ibv.WCSuccess
	return nil
}

// Modify is that of the queue pair. RESET begins to count again.
func (p *collapsedPair) Modify(a ibv.QPAttr, mask ibv.QPAttrMask) error {
	if err := p.DevXQP.Modify(a, mask); err != nil {
		return err
	}
	if a.State != ibv.QPSReset {
		return nil
	}
	if err := p.discardReceives(); err != nil {
		return err
	}
	return p.restart()
}

// discardReceives takes off the ring what the queue pair left there, as libmlx5 does after RESET. These entries are of
// receives that the worker has given up.
func (p *collapsedPair) discardReceives() error {
	for {
		found, err := p.recvs.Next(&p.entry)
		if err != nil {
			return fmt.Errorf("reading the ring of its receives: %w", err)
		}
		if !found {
			p.recvCQ.SetConsumerIndex(p.recvs.Consumed())
			return nil
		}
	}
}

// PostSend posts requests, and keeps their wr_ids until they have ended. The caller has no more than depth outstanding.
func (p *collapsedPair) PostSend(wrs []ibv.SendWR) (int, error) {
	first := p.posted()
	room := int(p.depth - (first - p.polled))
	wrs = wrs[:min(room, len(wrs))]
	for i := range wrs {
		p.ids[(first+uint64(i))%p.depth] = wrs[i].WRID
	}
	return p.DevXQP.PostSend(wrs)
}

// poll is ibv_poll_cq of both completion queues.
func (p *collapsedPair) poll(dst []ibv.WC) (n int, err error) {
	// First, because it may fail: what pollReceives takes off the ring must reach the caller.
	if err := p.sample(); err != nil {
		return 0, err
	}
	if n, err = p.pollReceives(dst); err != nil {
		return 0, err
	}
	for ; n < len(dst) && p.polled < p.ended; n++ {
		dst[n] = ibv.WC{WRID: p.ids[p.polled%p.depth], Status: p.status(p.polled), QPNum: p.Number()}
		p.polled++
	}
	p.Free(p.polled, p.received)
	return n, nil
}

// status returns the result of an ended send.
func (p *collapsedPair) status(number uint64) ibv.WCStatus {
	switch {
	case number < p.okEnd:
		return ibv.WCSuccess
	case number < p.failBegin:
		return statusUnknown
	case number == p.failBegin:
		return p.cause
	}
	return ibv.WCWRFlushErr
}

// sample reads the entry of the sends.
func (p *collapsedPair) sample() error {
	now := p.sends.SampleUpTo(p.posted)
	if now.Ambiguous {
		return errors.New("its collapsed completion queue names a request that is not outstanding")
	}
	fresh := now.Completed - p.ended
	if fresh == 0 {
		return nil
	}
	last := now.Completed - 1
	p.ended = now.Completed

	switch {
	case p.failed: // everything behind a failure is flushed
	case now.Errors == 0:
		p.okEnd, p.failBegin = p.ended, p.ended
	default:
		p.failed = true
		p.failBegin = last
		p.cause = ibv.WCGeneralErr
		status, known := statusBySyndrome[now.Last.Syndrome]
		if known {
			p.cause = status
		}
		flushed := now.Last.Syndrome == flexio.SyndromeWRFlush
		if known && !flushed || fresh == 1 {
			p.okEnd = last // it is the first failure, and requests end in order
		}
	}
	return nil
}

// pollReceives takes entries of the receives' ring.
func (p *collapsedPair) pollReceives(dst []ibv.WC) (n int, err error) {
	for n < len(dst) {
		found, err := p.recvs.Next(&p.entry)
		if err != nil {
			return 0, fmt.Errorf("reading the ring of its receives: %w", err)
		}
		if !found {
			break
		}
		status := ibv.WCSuccess
		if p.entry.OpOwn.Opcode().IsError() {
			status = ibv.WCGeneralErr
			if s, known := statusBySyndrome[p.entry.Syndrome]; known {
				status = s
			}
		}
		dst[n] = ibv.WC{WRID: wrID(0, opRecv), Status: status, QPNum: p.Number()}
		n++
	}
	if n > 0 {
		p.received += uint64(n)
		p.recvCQ.SetConsumerIndex(p.recvs.Consumed())
	}
	return n, nil
}

// statusBySyndrome has the statuses that ibv_poll_cq of libmlx5 returns. It is never written.
var statusBySyndrome = map[flexio.Syndrome]ibv.WCStatus{
	flexio.SyndromeLocalLength:      ibv.WCLocLenErr,
	flexio.SyndromeLocalQPOp:        ibv.WCLocQPOpErr,
	flexio.SyndromeLocalProt:        ibv.WCLocProtErr,
	flexio.SyndromeWRFlush:          ibv.WCWRFlushErr,
	flexio.SyndromeMWBind:           ibv.WCMWBindErr,
	flexio.SyndromeBadResp:          ibv.WCBadRespErr,
	flexio.SyndromeLocalAccess:      ibv.WCLocAccessErr,
	flexio.SyndromeRemoteInvalReq:   ibv.WCRemInvReqErr,
	flexio.SyndromeRemoteAccess:     ibv.WCRemAccessErr,
	flexio.SyndromeRemoteOp:         ibv.WCRemOpErr,
	flexio.SyndromeTransportRetries: ibv.WCRetryExcErr,
	flexio.SyndromeRNRRetries:       ibv.WCRNRRetryExcErr,
	flexio.SyndromeRemoteAborted:    ibv.WCRemAbortErr,
}

const collapsedFix = "use source cq_ring, which reads the entries of an mlx5 completion queue where the device wrote them, or auto"

// collapsedError says why a device has no collapsed completion queue, and what to use in its place. Another error, such as
// one for lack of memory, says nothing of the device.
func collapsedError(device string, err error) error {
	if !errors.Is(err, probe.ErrNotSupported) {
		return fmt.Errorf("making a collapsed completion queue on %s: %w", device, err)
	}
	return &probe.UnsupportedError{
		Feature: "a collapsed completion queue",
		Object:  device,
		Reason:  backend.ReasonOf(err),
		Fix:     collapsedFix,
	}
}

// openCollapsed counts the completions of a collapsedPair, which createQueues has made. It must be asked for by name.
func openCollapsed(e *endpoint) (completionSource, string, error) {
	if err := e.refuseRemote(); err != nil {
		return nil, "", err
	}
	if e.collapsed == nil {
		return nil, "", &probe.UnsupportedError{
			Feature: "a collapsed completion queue",
			Object:  e.cfg.Device,
			Reason:  "only on request (source: collapsed_cq) and for counters, because after an error it cannot tell which operations before it succeeded",
			Fix:     collapsedFix,
		}
	}
	return pollSource{&e.index}, modeCollapsed, nil
}

// wantsCollapsed reports whether the configuration asks for a collapsed completion queue.
func (e *endpoint) wantsCollapsed() bool {
	return e.cfg.Source == dataplane.SourceCollapsedCQ && len(e.counters) > 0
}

// openDevX opens the device for the commands that make a collapsed completion queue, and makes a domain there: only objects of
// one context can use each other.
func (e *endpoint) openDevX() (err error) {
	if e.cfg.Type != dataplane.RC {
		return &probe.UnsupportedError{
			Feature: "a collapsed completion queue",
			Object:  e.cfg.Device,
			Reason:  fmt.Sprintf("a queue pair that uses one is a reliable connection, and type is %s", e.cfg.Type),
			Fix:     "set `type` of the queue pair to rc, or use source cq_ring or auto",
		}
	}
	if e.dx, err = e.ctx.DevX(); err != nil {
		return collapsedError(e.cfg.Device, err)
	}
	if e.pd, err = e.dx.AllocPD(); err != nil {
		return collapsedError(e.cfg.Device, err)
	}
	return nil
}
