package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/shm"
)

// What a reliable connection does about a peer that does not answer, as ibv_rc_pingpong has it.
const (
	ackTimeout   = 14 // 4.096 µs << 14: 67 ms
	retryCount   = 7
	rnrRetry     = 7  // for ever: a peer that has no buffer posted yet is waited for
	minRNRTimer  = 12 // 0.64 ms
	hopLimit     = 64
	readsAtATime = 1 // that a peer answers, whatever it can; both ends need the same
)

// newPSN is a packet sequence number that an earlier connection has hardly had.
func newPSN() uint32 { return rand.Uint32() & 0xffffff }

// newQKey is one that a peer has to be told. The highest bit is the kernel's.
func newQKey() uint32 { return rand.Uint32() & 0x7fffffff }

// begin brings the queue pair from RESET to where it waits for a peer, INIT, or needs none,
// RTS, with its receives posted.
func (q *queuePair) begin(e *endpoint) error {
	a, mask := ibv.QPAttr{State: ibv.QPSInit, PortNum: q.cfg.Port}, ibv.QPAttrState|ibv.QPAttrPort
	switch q.cfg.Type {
	case dataplane.RC:
		a.AccessFlags = remoteAccess
		mask |= ibv.QPAttrPKeyIndex | ibv.QPAttrAccessFlags
	case dataplane.UD:
		a.QKey = e.local.QKey
		mask |= ibv.QPAttrPKeyIndex | ibv.QPAttrQKey
	}
	if err := e.modify(a, mask); err != nil {
		return err
	}
	e.posted, e.fault = 0, fault{}
	if err := q.receive(e, q.cfg.Receives); err != nil {
		return err
	}
	if q.cfg.Type == dataplane.RC {
		return nil
	}
	if err := e.modify(ibv.QPAttr{State: ibv.QPSRTR}, ibv.QPAttrState); err != nil {
		return err
	}
	a, mask = ibv.QPAttr{State: ibv.QPSRTS, SQPSN: e.local.PSN}, ibv.QPAttrState
	if q.cfg.Type == dataplane.UD {
		mask |= ibv.QPAttrSQPSN
	}
	return e.modify(a, mask)
}

func (e *endpoint) modify(a ibv.QPAttr, mask ibv.QPAttrMask) error {
	err := e.qp.Modify(a, mask)
	if err == nil {
		e.state = a.State
	}
	return err
}

// connect tells the queue pair its peer. One that has that peer already stays as it is, unless
// anew: then what is outstanding ends with errors first.
func (q *queuePair) connect(ctx context.Context, peer dataplane.QueuePairAddress, anew bool) error {
	if q.cfg.Type == dataplane.RawPacket {
		return fmt.Errorf("queue pair %q: one of type raw_packet has no other end: %w", q.cfg.Name, dataplane.ErrInvalid)
	}
	if err := peer.Validate(); err != nil {
		return fmt.Errorf("queue pair %q: its peer: %w", q.cfg.Name, err)
	}
	return q.call(ctx, func() error {
		e := q.end
		switch {
		case e == nil:
			return fmt.Errorf("queue pair %q: %w: %w", q.cfg.Name, dataplane.ErrNotConnected, backend.ErrDeviceLost)
		case !anew && e.state == ibv.QPSRTS && q.peer == peer:
			return nil
		case !peer.GID.IsValid() && e.port.LinkLayer == ibv.LinkLayerEthernet:
			return fmt.Errorf("queue pair %q: connecting it to %v: port %d of %s is Ethernet, which knows no LIDs: name the peer's gid: %w",
				q.cfg.Name, peer, q.cfg.Port, q.cfg.Device, dataplane.ErrInvalid)
		}
		err := q.join(peer)
		if err == nil {
			e.loose = nil
		} else {
			err = fmt.Errorf("connecting it to %v: %w", peer, err)
			if e.state != ibv.QPSRTS {
				q.peer = dataplane.QueuePairAddress{}
			}
			if q.peer == (dataplane.QueuePairAddress{}) { // else the connection of before stands
				e.loose = err
			}
			err = fmt.Errorf("queue pair %q: %w", q.cfg.Name, err)
		}
		q.show()
		return err
	})
}

// join makes the connection, of a queue pair in whatever state.
func (q *queuePair) join(peer dataplane.QueuePairAddress) error {
	e := q.end
	start := ibv.QPSInit
	if q.cfg.Type == dataplane.UD {
		start = ibv.QPSRTS
	}
	// Datagrams may be under way to the peer of now; its address handle goes after them. Receives
	// lack where posting them failed the last time.
	if e.state != start || q.outstanding.Load() > 0 || e.posted < q.cfg.Receives {
		if err := q.restart(); err != nil {
			return err
		}
	}
	q.peer = dataplane.QueuePairAddress{}
	ah := ibv.AHAttr{PortNum: q.cfg.Port, DLID: peer.LID}
	if peer.GID.IsValid() {
		ah.IsGlobal = true
		ah.GRH = ibv.GlobalRoute{DGID: peer.GID.As16(), SGIDIndex: uint8(q.cfg.GIDIndex), HopLimit: hopLimit}
	}
	if q.cfg.Type == dataplane.UD {
		way, err := e.pd.CreateAH(ah)
		if err != nil {
			return err
		}
		if e.ah != nil {
			if err := e.ah.Close(); err != nil { // it is asked again the next time
				return errors.Join(err, way.Close())
			}
		}
		e.ah, q.peer = way, peer
		return nil
	}
	err := e.modify(ibv.QPAttr{
		State: ibv.QPSRTR, AH: ah, PathMTU: e.port.ActiveMTU, DestQPNum: peer.QPN, RQPSN: peer.PSN,
		MaxDestRdAtomic: readsAtATime, MinRNRTimer: minRNRTimer,
	}, ibv.QPAttrState|ibv.QPAttrAV|ibv.QPAttrPathMTU|ibv.QPAttrDestQPN|ibv.QPAttrRQPSN|ibv.QPAttrMaxDestRdAtomic|ibv.QPAttrMinRNRTimer)
	if err != nil {
		return err
	}
	err = e.modify(ibv.QPAttr{
		State: ibv.QPSRTS, SQPSN: e.local.PSN, Timeout: ackTimeout, RetryCnt: retryCount, RNRRetry: rnrRetry, MaxRdAtomic: readsAtATime,
	}, ibv.QPAttrState|ibv.QPAttrSQPSN|ibv.QPAttrTimeout|ibv.QPAttrRetryCnt|ibv.QPAttrRNRRetry|ibv.QPAttrMaxQPRdAtomic)
	if err != nil {
		return err
	}
	q.peer = peer
	return nil
}

// restart brings the queue pair back to where it began, with the number that peers know. What is
// outstanding ends with errors, and is counted, before RESET drops what is left.
func (q *queuePair) restart() error {
	e := q.end
	if e.state == ibv.QPSReset { // it got no further the last time; no way leads from there to ERR
		return q.begin(e)
	}
	e.renewing = true
	defer func() { e.renewing = false }()
	if e.state != ibv.QPSErr {
		if err := e.modify(ibv.QPAttr{State: ibv.QPSErr}, ibv.QPAttrState); err != nil {
			return err
		}
	}
	for until := time.Now().Add(flushBound); q.outstanding.Load() > 0 || e.posted > 0; {
		n, err := q.drain()
		if err != nil {
			return err
		}
		if time.Now().After(until) {
			q.log.Warn("what was outstanding did not end", "sends", q.outstanding.Load(), "receives", e.posted)
			q.interrupt("what was outstanding did not end", q.outstanding.Load() == 0)
			break
		}
		if n == 0 {
			time.Sleep(pauseMin)
		}
	}
	if err := q.tally(nil, shm.Now(), true); err != nil {
		return err
	}
	q.job.fail(fmt.Errorf("%w: it is being connected anew", dataplane.ErrNotConnected))
	q.finish() // also of what did not end: RESET drops it
	if err := e.modify(ibv.QPAttr{State: ibv.QPSReset}, ibv.QPAttrState); err != nil {
		return err
	}
	q.outstanding.Store(0)
	return q.begin(e)
}

// call has the goroutine run do between two looks at the completion queue.
func (q *queuePair) call(ctx context.Context, do func() error) error {
	answer := make(chan error, 1)
	select {
	case q.requests <- func() { answer <- do() }:
		return <-answer
	case <-ctx.Done():
		return fmt.Errorf("queue pair %q: %w", q.cfg.Name, ctx.Err())
	case <-q.done:
		return fmt.Errorf("queue pair %q: %w", q.cfg.Name, dataplane.ErrClosed)
	}
}
