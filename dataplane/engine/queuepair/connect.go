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
	rnrRetry     = 7  // without limit, until the peer has posted a buffer
	minRNRTimer  = 12 // 0.64 ms
	hopLimit     = 64
	readsAtATime = 1 // concurrent RDMA reads served by a peer; both ends must use the same number
)

// newPSN returns a random packet sequence number. Late packets of an earlier connection are then unlikely to
// fit into a new one.
func newPSN() uint32 { return rand.Uint32() & 0xffffff }

// newQKey returns a random queue key. The kernel reserves the highest bit.
func newQKey() uint32 { return rand.Uint32() & 0x7fffffff }

// leaveReset moves the queue pair from RESET to its first working state, and posts its receives. A reliable
// connection waits for its peer in INIT. The other types need no peer for RTS.
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

	// A queue pair takes receives from INIT on. Post them now, before a peer can send.
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

// modify calls ibv_modify_qp and, on success, remembers the new state.
func (e *endpoint) modify(a ibv.QPAttr, mask ibv.QPAttrMask) error {
	err := e.pair().Modify(a, mask)
	if err == nil {
		e.state = a.State
	}
	return err
}

// setPeer sets the peer. A reliable connection must be in INIT, a queue pair of type ud or srd in RTS. After
// an error the queue pair has no peer.
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

// replaceAH makes an address handle for path, and closes the previous one.
func (e *endpoint) replaceAH(_ dataplane.QueuePairAddress, path ibv.AHAttr) error {
	ah, err := e.pd.CreateAH(path)
	if err != nil {
		return err
	}
	if e.ah != nil {
		if err := e.ah.Close(); err != nil { // keep the old handle, so that the next call can close it
			return errors.Join(err, ah.Close())
		}
	}
	e.ah = ah
	return nil
}

// goToRTS connects a queue pair in INIT to its peer: first to RTR, then to RTS.
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

// connectPeer connects the queue pair to peer from any state. It is the worker's half of queuePair.connect.
func (w *worker) connectPeer(peer dataplane.QueuePairAddress, anew bool) error {
	e := w.endpoint
	switch {
	case e == nil:
		return fmt.Errorf("queue pair %q: connecting it: %w: %w", w.cfg.Name, dataplane.ErrNotConnected, backend.ErrDeviceLost)
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
	if e.peer == (dataplane.QueuePairAddress{}) { // otherwise the earlier connection still works
		e.connectErr = err
	}
	return fmt.Errorf("queue pair %q: %w", w.cfg.Name, err)
}

// reconnect moves the queue pair back to its first working state if needed, and sets its peer.
func (w *worker) reconnect(peer dataplane.QueuePairAddress) error {
	e := w.endpoint
	start := ibv.QPSInit
	if w.cfg.Type.Datagrams() {
		start = ibv.QPSRTS
	}
	// Restart a queue pair with outstanding operations too: datagrams use the address handle of the present
	// peer, which setPeer closes. And restart one with missing receives: posting them may have failed the last time.
	if e.state != start || w.outstanding.Load() > 0 || e.receives < w.cfg.Receives {
		if err := w.restart(); err != nil {
			return err
		}
	}
	return e.setPeer(peer)
}

// restart moves the queue pair through ERR and RESET back to its first working state. It keeps its number,
// which peers know. In ERR outstanding operations end with errors, which we count. RESET drops the rest.
func (w *worker) restart() error {
	e := w.endpoint
	if e.state == ibv.QPSReset { // leaveReset failed the last time; from RESET there is no way to ERR
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
	w.finishJob() // even if some operations have not ended: RESET drops them

	if err := e.modify(ibv.QPAttr{State: ibv.QPSReset}, ibv.QPAttrState); err != nil {
		return err
	}
	w.outstanding.Store(0)
	return e.leaveReset()
}

// flush waits until the outstanding operations of a queue pair in ERR have ended with errors, and counts them.
// After flushBound it gives up and declares a discontinuity for the rest.
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
