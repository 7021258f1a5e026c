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
	a, mask := ibv.QPAttr{State: ibv.QPSInit, PortNum: e.cfg.Port}, ibv.QPAttrState|ibv.QPAttrPort
	switch e.cfg.Type {
	case dataplane.RC:
		a.AccessFlags = e.remoteAccess
		mask |= ibv.QPAttrPKeyIndex | ibv.QPAttrAccessFlags
	case dataplane.UD, dataplane.SRD:
		a.QKey = e.local.QKey
		mask |= ibv.QPAttrPKeyIndex | ibv.QPAttrQKey
	}
	if err := e.modify(a, mask); err != nil {
		return err
	}
	e.receives, e.fault = 0, fault{}
	if err := e.postReceives(e.cfg.Receives); err != nil {
		return err
	}
	if e.cfg.Type == dataplane.RC {
		return nil
	}
	if err := e.modify(ibv.QPAttr{State: ibv.QPSRTR}, ibv.QPAttrState); err != nil {
		return err
	}
	a, mask = ibv.QPAttr{State: ibv.QPSRTS, SQPSN: e.local.PSN}, ibv.QPAttrState
	if e.cfg.Type.Datagrams() {
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

// setPeer sets the peer of a queue pair in INIT, or of one of type ud or srd in RTS.
func (e *endpoint) setPeer(peer dataplane.QueuePairAddress) error {
	e.peer = dataplane.QueuePairAddress{}
	ah := ibv.AHAttr{PortNum: e.cfg.Port, DLID: peer.LID}
	if peer.GID.IsValid() {
		ah.IsGlobal = true
		ah.GRH = ibv.GlobalRoute{DGID: peer.GID.As16(), SGIDIndex: uint8(e.cfg.GIDIndex), HopLimit: hopLimit}
	}
	if e.cfg.Type.Datagrams() {
		handle, err := e.pd.CreateAH(ah)
		if err != nil {
			return err
		}
		if e.ah != nil {
			if err := e.ah.Close(); err != nil { // the next call closes it
				return errors.Join(err, handle.Close())
			}
		}
		e.ah, e.peer = handle, peer
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
	e.peer = peer
	return nil
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
	err := w.reconnect(peer)
	if err == nil {
		e.connectErr = nil
	} else {
		err = fmt.Errorf("connecting it to %v: %w", peer, err)
		if e.state != ibv.QPSRTS {
			e.peer = dataplane.QueuePairAddress{}
		}
		if e.peer == (dataplane.QueuePairAddress{}) { // else the earlier connection stands
			e.connectErr = err
		}
		err = fmt.Errorf("queue pair %q: %w", w.cfg.Name, err)
	}
	w.publishView()
	return err
}

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
	for until := time.Now().Add(flushBound); w.outstanding.Load() > 0 || e.receives > 0; {
		n, err := w.drain()
		if err != nil {
			return err
		}
		if time.Now().After(until) {
			w.log.Warn("outstanding operations did not end", "sends", w.outstanding.Load(), "receives", e.receives)
			w.interrupt("outstanding operations did not end", w.outstanding.Load() == 0)
			break
		}
		if n == 0 {
			time.Sleep(pauseMin)
		}
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
