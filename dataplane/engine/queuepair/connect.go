package queuepair

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/shm"
)

// The attributes of a reliable connection, as ibv_rc_pingpong sets them.
const (
	ackTimeout   = 14 // 4.096 µs << 14: 67 ms
	retryCount   = 7
	rnrRetry     = 7  // without end, until the peer has posted a buffer
	minRNRTimer  = 12 // 0.64 ms
	hopLimit     = 64
	readsAtATime = 1 // RDMA reads that a peer serves at a time; both ends need the same number
)

// newPSN returns a packet sequence number that an earlier connection is unlikely to have.
func newPSN() uint32 { return rand.Uint32() & 0xffffff }

// newQKey returns a queue key for the peer. The highest bit is reserved for the kernel.
func newQKey() uint32 { return rand.Uint32() & 0x7fffffff }

// leaveReset brings the queue pair from RESET to INIT, where it waits for a peer, or to RTS if its
// type needs none, and posts its receives.
func (e *endpoint) leaveReset() error {
	initial := ibv.QPAttr{State: ibv.QPSInit, PortNum: e.cfg.Port}
	mask := ibv.QPAttrState | ibv.QPAttrPort
	switch e.cfg.Type {
	case dataplane.RC:
		initial.AccessFlags = e.remoteAccess
		mask |= ibv.QPAttrPKeyIndex | ibv.QPAttrAccessFlags
	case dataplane.UD, dataplane.SRD:
		initial.QKey = e.local.QKey
		mask |= ibv.QPAttrPKeyIndex | ibv.QPAttrQKey
	}
	if err := e.modify(initial, mask); err != nil {
		return err
	}

	// From INIT on a queue pair takes receives. They are there before the peer can send.
	e.receives = 0
	e.fault = fault{}
	if err := e.postReceives(e.cfg.Receives); err != nil {
		return err
	}
	if e.cfg.Type == dataplane.RC {
		return nil
	}

	if err := e.modify(ibv.QPAttr{State: ibv.QPSRTR}, ibv.QPAttrState); err != nil {
		return err
	}
	mask = ibv.QPAttrState
	if e.cfg.Type.Datagrams() {
		mask |= ibv.QPAttrSQPSN
	}
	return e.modify(ibv.QPAttr{State: ibv.QPSRTS, SQPSN: e.local.PSN}, mask)
}

// modify is ibv_modify_qp with a state, which it notes.
func (e *endpoint) modify(a ibv.QPAttr, mask ibv.QPAttrMask) error {
	err := e.qp.Modify(a, mask)
	if err == nil {
		e.state = a.State
	}
	return err
}

// setPeer sets the peer of a queue pair in INIT, or of one of type ud or srd in RTS. After an error it has none.
func (e *endpoint) setPeer(peer dataplane.QueuePairAddress) error {
	e.peer = dataplane.QueuePairAddress{}

	path := ibv.AHAttr{PortNum: e.cfg.Port, DLID: peer.LID}
	if peer.GID.IsValid() {
		path.IsGlobal = true
		path.GRH = ibv.GlobalRoute{
			DGID:      peer.GID.As16(),
			SGIDIndex: uint8(e.cfg.GIDIndex),
			HopLimit:  hopLimit,
		}
	}

	set := e.goToRTS
	if e.cfg.Type.Datagrams() {
		set = e.replaceAH
	}
	if err := set(peer, path); err != nil {
		return err
	}
	e.peer = peer
	return nil
}

// replaceAH makes the address handle of a peer, and closes the one before.
func (e *endpoint) replaceAH(_ dataplane.QueuePairAddress, path ibv.AHAttr) error {
	ah, err := e.pd.CreateAH(path)
	if err != nil {
		return err
	}
	if e.ah != nil {
		if err := e.ah.Close(); err != nil { // e.ah stays, and the next call closes it
			return errors.Join(err, ah.Close())
		}
	}
	e.ah = ah
	return nil
}

// goToRTS connects a queue pair in INIT to its peer, by way of RTR.
func (e *endpoint) goToRTS(peer dataplane.QueuePairAddress, path ibv.AHAttr) error {
	err := e.modify(ibv.QPAttr{
		State:           ibv.QPSRTR,
		AH:              path,
		PathMTU:         e.port.ActiveMTU,
		DestQPNum:       peer.QPN,
		RQPSN:           peer.PSN,
		MaxDestRdAtomic: readsAtATime,
		MinRNRTimer:     minRNRTimer,
	}, ibv.QPAttrState|ibv.QPAttrAV|ibv.QPAttrPathMTU|ibv.QPAttrDestQPN|ibv.QPAttrRQPSN|ibv.QPAttrMaxDestRdAtomic|ibv.QPAttrMinRNRTimer)
	if err != nil {
		return err
	}

	return e.modify(ibv.QPAttr{
		State:       ibv.QPSRTS,
		SQPSN:       e.local.PSN,
		Timeout:     ackTimeout,
		RetryCnt:    retryCount,
		RNRRetry:    rnrRetry,
		MaxRdAtomic: readsAtATime,
	}, ibv.QPAttrState|ibv.QPAttrSQPSN|ibv.QPAttrTimeout|ibv.QPAttrRetryCnt|ibv.QPAttrRNRRetry|ibv.QPAttrMaxQPRdAtomic)
}

// connectPeer connects the queue pair, in whatever state it is, to peer; see queuePair.connect.
func (w *worker) connectPeer(peer dataplane.QueuePairAddress, anew bool) error {
	e := w.endpoint
	switch {
	case e == nil:
		return fmt.Errorf("queue pair %q: %w: %w", w.cfg.Name, dataplane.ErrNotConnected, backend.ErrDeviceLost)
	case !anew && e.state == ibv.QPSRTS && e.peer == peer:
		return nil
	case !peer.GID.IsValid() && e.port.LinkLayer == ibv.LinkLayerEthernet:
		return fmt.Errorf("queue pair %q: connecting it to %v: port %d of %s is Ethernet, which knows no LIDs: name the peer's gid: %w",
			w.cfg.Name, peer, w.cfg.Port, w.cfg.Device, dataplane.ErrInvalid)
	}

	defer w.publishView()
	err := w.reconnect(peer)
	if err == nil {
		e.connectErr = nil
		return nil
	}

	err = fmt.Errorf("connecting it to %v: %w", peer, err)
	if e.state != ibv.QPSRTS {
		e.peer = dataplane.QueuePairAddress{}
	}
	if e.peer == (dataplane.QueuePairAddress{}) { // otherwise the earlier connection stands
		e.connectErr = err
	}
	return fmt.Errorf("queue pair %q: %w", w.cfg.Name, err)
}

// reconnect takes the queue pair back to its first state, unless it is there, and sets its peer.
func (w *worker) reconnect(peer dataplane.QueuePairAddress) error {
	e := w.endpoint
	start := ibv.QPSInit
	if w.cfg.Type.Datagrams() {
		start = ibv.QPSRTS
	}
	// Outstanding datagrams use the address handle of the present peer, which setPeer closes. Receives
	// are missing if posting them failed the last time.
	if e.state != start || w.outstanding.Load() > 0 || e.receives < w.cfg.Receives {
		if err := w.restart(); err != nil {
			return err
		}
	}
	return e.setPeer(peer)
}

// restart takes the queue pair through ERR and RESET back to its first state, with the number that peers
// know. Outstanding operations end with errors, and are counted, before RESET drops the rest.
func (w *worker) restart() error {
	e := w.endpoint
	if e.state == ibv.QPSReset { // leaveReset failed the last time, and RESET has no transition to ERR
		return e.leaveReset()
	}
	e.reconnecting = true
	defer func() { e.reconnecting = false }()

	if e.state != ibv.QPSErr {
		if err := e.modify(ibv.QPAttr{State: ibv.QPSErr}, ibv.QPAttrState); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.count(nil, shm.Now(), true); err != nil {
		return err
	}
	w.job.fail(fmt.Errorf("%w: it is being connected anew", dataplane.ErrNotConnected))
	w.finishJob() // also of operations that did not end: RESET drops them

	if err := e.modify(ibv.QPAttr{State: ibv.QPSReset}, ibv.QPAttrState); err != nil {
		return err
	}
	w.outstanding.Store(0)
	return e.leaveReset()
}

// flush counts the outstanding operations of a queue pair in ERR, which end with errors. It waits for them no longer
// than flushBound: those that are left are a discontinuity.
func (w *worker) flush() error {
	e := w.endpoint
	until := time.Now().Add(flushBound)
	for w.outstanding.Load() > 0 || e.receives > 0 {
		n, err := w.drain()
		if err != nil {
			return err
		}
		if time.Now().After(until) {
			w.log.Warn("outstanding operations did not end", "sends", w.outstanding.Load(), "receives", e.receives)
			w.interrupt("outstanding operations did not end", w.outstanding.Load() == 0)
			return nil
		}
		if n == 0 {
			time.Sleep(pauseMin)
		}
	}
	return nil
}
