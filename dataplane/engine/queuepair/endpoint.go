package queuepair

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/shm"
)

// endpoint is the verbs objects of a queue pair while its device is there. No object is shared
// with another queue pair, so that no queue pair can delay another. Its worker's goroutine uses it, and listen
// its ctx.
type endpoint struct {
	*queuePair
	ctx    *ibv.Context
	port   ibv.PortAttr
	pd     *ibv.PD
	buffer *ibv.MR // of sends, and of everything that arrives: no code reads it
	remote *ibv.MR // that the peer may read and write; rc and srd only
	cq     *ibv.CQ
	qp     *ibv.QP
	ah     *ibv.AH // to the peer; ud and srd only

	// The connection.
	local        dataplane.QueuePairAddress
	peer         dataplane.QueuePairAddress
	state        ibv.QPState
	reconnecting bool  // in ERR on the way to a new connection
	fault        fault // first completion in error since the queue pair was connected
	connectErr   error // why connecting failed, which left the queue pair without a peer

	// The device.
	unanswered   int                // checks in a row at which the device did not carry out a command
	cancelEvents context.CancelFunc // ends listen

	// The messages.
	remoteAccess ibv.AccessFlags // of the peer to the remote buffer
	messageSize  int             // bytes
	receiveSize  int             // bytes of a buffer for a message that arrives
	receives     int             // posted
	recv         [wrBatch]ibv.RecvWR

	// The counting.
	source       completionSource
	mode         string // of source
	rejected     []dataplane.Rejection
	polled       []backend.Pair    // totals of the completions that ibv_poll_cq returned
	slots        []*shm.DeviceSlot // the device may write to them until ctx is closed
	sourceErr    error             // why the first source was replaced
	failedSource completionSource  // first source, kept until the queue pair is destroyed
}

const (
	// wcBatch and wrBatch are the number of completions that one call of ibv_poll_cq returns at most, and of
	// work requests that one call posts at most.
	wcBatch, wrBatch = 64, 64
	// grhSize is the size of the global route header, which precedes the message in a datagram's buffer.
	grhSize = 40
	// defaultMessageSize is the size of a message where the configuration names none.
	defaultMessageSize = 4096
)

func qpType(t dataplane.QueuePairType) ibv.QPType {
	switch t {
	case dataplane.UD:
		return ibv.QPTUD
	case dataplane.SRD:
		return ibv.QPTSRD
	case dataplane.RawPacket:
		return ibv.QPTRawPacket
	}
	return ibv.QPTRC
}

// newEndpoint opens the device and makes the queue pair there, with its receives posted and the
// best source that the device has: in INIT if it needs a peer to go on, else in RTS. totals are
// the completions of the endpoints before.
func newEndpoint(q *queuePair, totals []backend.Pair) (_ *endpoint, err error) {
	e := &endpoint{queuePair: q, polled: slices.Clone(totals)}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()

	if e.ctx, err = q.set.open(q.cfg.Device); err != nil {
		return nil, err
	}
	if err := e.queryDevice(); err != nil {
		return nil, err
	}
	if err := e.allocMemory(); err != nil {
		return nil, err
	}
	if err := e.chooseSource(); err != nil {
		return nil, err
	}

	e.local.QPN = e.qp.Number()
	e.local.PSN = newPSN()
	if q.cfg.Type.Datagrams() {
		e.local.QKey = newQKey()
	}
	if err := e.leaveReset(); err != nil {
		return nil, err
	}
	return e, nil
}

// allocMemory makes the protection domain and its memory regions.
func (e *endpoint) allocMemory() (err error) {
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		return err
	}
	if e.buffer, err = e.pd.AllocMR(max(e.messageSize, e.receiveSize), ibv.AccessLocalWrite); err != nil {
		return err
	}
	if !e.cfg.Type.RDMA() {
		return nil
	}
	if e.remote, err = e.pd.AllocMR(e.messageSize, e.remoteAccess|ibv.AccessLocalWrite); err != nil {
		return err
	}
	e.local.Addr = e.remote.Addr()
	e.local.RKey = e.remote.RKey()
	return nil
}

// queryDevice reads the attributes of the device and its port, and checks the configuration against them.
func (e *endpoint) queryDevice() (err error) {
	dev, err := e.ctx.QueryDevice()
	if err != nil {
		return err
	}
	if n := dev.PhysPortCnt; e.cfg.Port > n { // ibv_query_port returns EINVAL, without a reason
		has := fmt.Sprintf("the ports of %s are 1 to %d", e.cfg.Device, n)
		if n == 1 {
			has = fmt.Sprintf("the only port of %s is 1", e.cfg.Device)
		}
		return fmt.Errorf("port is %d, and %s: correct `port` of the queue pair in the configuration: %w", e.cfg.Port, has, dataplane.ErrInvalid)
	}
	if e.port, err = e.ctx.QueryPort(e.cfg.Port); err != nil {
		return err
	}
	if err := e.queryAddress(); err != nil {
		return err
	}
	if err := e.queryOperations(); err != nil {
		return err
	}
	if err := e.setMessageSize(); err != nil {
		return err
	}
	if n := max(e.cfg.SendDepth, e.cfg.Receives); n > dev.MaxQPWR {
		return fmt.Errorf("send_depth %d, receives %d: a queue of the device holds %d: %w", e.cfg.SendDepth, e.cfg.Receives, dev.MaxQPWR, dataplane.ErrInvalid)
	}
	return nil
}

// setMessageSize sets the size of messages: the configured one, or the default as far as a datagram holds it.
func (e *endpoint) setMessageSize() error {
	most := e.port.ActiveMTU.Bytes()
	if e.cfg.Type == dataplane.SRD { // the device splits a message, and EFA's largest is not the MTU's
		most = int(min(e.port.MaxMsgSz, math.MaxInt32))
	}
	bounded := e.cfg.Type.Datagrams() && most > 0

	e.messageSize = e.cfg.MessageSize
	switch {
	case e.messageSize == 0 && bounded:
		e.messageSize = min(defaultMessageSize, most)
	case e.messageSize == 0:
		e.messageSize = defaultMessageSize
	case bounded && e.messageSize > most:
		return fmt.Errorf("message_size %d: a datagram of the port holds %d bytes: %w", e.messageSize, most, dataplane.ErrInvalid)
	}

	e.receiveSize = e.messageSize
	if e.cfg.Type == dataplane.UD {
		e.receiveSize += grhSize
	}
	return nil
}

// queryOperations reads which access to the remote buffer the peer can have. An EFA device may lack rdma_write, or
// rdma_read too, and does not register memory for such an access.
func (e *endpoint) queryOperations() error {
	e.remoteAccess = ibv.AccessRemoteWrite | ibv.AccessRemoteRead
	if e.cfg.Type != dataplane.SRD {
		return nil
	}
	efa, err := e.ctx.QueryEFA()
	if err != nil {
		return err
	}
	if !efa.RDMAWrite {
		e.remoteAccess &^= ibv.AccessRemoteWrite
	}
	if !efa.RDMARead {
		e.remoteAccess &^= ibv.AccessRemoteRead
	}
	return nil
}

// queryAddress reads the LID and the GID of the port.
func (e *endpoint) queryAddress() error {
	if n := e.port.GIDTblLen; e.cfg.GIDIndex > 0 && e.cfg.GIDIndex >= n {
		return fmt.Errorf("port %d has %d GIDs, and gid_index is %d: see `ibv_devinfo -v`: %w", e.cfg.Port, n, e.cfg.GIDIndex, dataplane.ErrInvalid)
	}
	e.local.LID = e.port.LID
	if e.cfg.Type == dataplane.RawPacket {
		return nil
	}
	gid, err := e.ctx.QueryGID(e.cfg.Port, e.cfg.GIDIndex)
	if err != nil {
		return err
	}
	if gid != (ibv.GID{}) {
		e.local.GID = netip.AddrFrom16(gid)
	} else if e.port.LID == 0 {
		return fmt.Errorf("GID %d of port %d is empty, and the port, in state %v, has no LID: bring its link up, or name a gid_index that `ibv_devinfo -v` shows: %w",
			e.cfg.GIDIndex, e.cfg.Port, e.port.State, dataplane.ErrInvalid)
	}
	return nil
}

// createQueues makes the completion queue and the queue pair, in RESET. The completion queue holds
// every operation that can be outstanding, so that it never overruns, and one batch more: the device
// overwrites completions that were polled only after the next batch was polled.
func (e *endpoint) createQueues() (err error) {
	e.cq, err = e.ctx.CreateCQ(ibv.CQOptions{CQE: e.cfg.SendDepth + e.cfg.Receives + wcBatch})
	if err != nil {
		return err
	}
	e.qp, err = e.pd.CreateQP(ibv.QPOptions{
		Type:      qpType(e.cfg.Type),
		SendCQ:    e.cq,
		RecvCQ:    e.cq,
		SignalAll: true,
		Cap: ibv.QPCap{
			MaxSendWR:  uint32(e.cfg.SendDepth),
			MaxRecvWR:  uint32(max(e.cfg.Receives, 1)),
			MaxSendSGE: 1,
			MaxRecvSGE: 1,
		},
	})
	return err
}

// destroyQueues is the inverse of createQueues. It destroys completion counters after the queue pair
// that holds them, and ends the reading of the completion queue's memory before that is freed.
func (e *endpoint) destroyQueues() error {
	var errs []error
	both := slices.DeleteFunc([]completionSource{e.source, e.failedSource}, func(s completionSource) bool { return s == nil })
	for _, s := range both {
		errs = append(errs, s.hideWords())
	}
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	for _, s := range both {
		errs = append(errs, s.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	e.qp, e.source, e.failedSource, e.cq = nil, nil, nil, nil
	return errors.Join(errs...)
}

// close destroys every object, before the objects that it depends on.
func (e *endpoint) close() error {
	if e.cancelEvents != nil {
		e.cancelEvents()
	}
	errs := []error{e.destroyQueues()}
	if e.ah != nil {
		errs = append(errs, e.ah.Close())
	}
	for _, m := range []*ibv.MR{e.buffer, e.remote} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	if e.pd != nil {
		errs = append(errs, e.pd.Close())
	}
	if e.ctx == nil {
		return errors.Join(errs...)
	}

	// Once the context is closed the device has no object left that writes to the slots, whatever errors came before.
	err := e.ctx.Close()
	if err == nil {
		for _, s := range e.slots {
			s.Free()
		}
	}
	return errors.Join(append(errs, err)...)
}

// postReceives posts n buffers for messages that arrive. All of them are the same memory, which is
// pinned once, because no code reads the messages.
func (e *endpoint) postReceives(n int) error {
	wr := ibv.RecvWR{
		WRID: wrID(0, opRecv),
		SGE:  ibv.SGE{Addr: e.buffer.Addr(), Length: uint32(e.receiveSize), LKey: e.buffer.LKey()},
	}
	for i := range e.recv[:min(n, len(e.recv))] {
		e.recv[i] = wr
	}

	for n > 0 {
		posted, err := e.qp.PostRecv(e.recv[:min(n, len(e.recv))])
		e.receives += posted
		n -= posted
		if err != nil {
			return err
		}
	}
	return nil
}

// viewNow returns the state of the endpoint for other goroutines.
func (e *endpoint) viewNow() view {
	v := view{
		endpoint:  e,
		state:     e.state.String(),
		local:     e.local,
		peer:      e.peer,
		rejected:  slices.Clone(e.rejected),
		sourceErr: e.sourceErr,
	}
	if len(e.counters) > 0 {
		device := dataplane.Device{Backend: flow.RDMA, Name: e.cfg.Device, Mode: dataplane.Mode(e.mode)}
		v.source = dataplane.Source{Backend: flow.RDMA, Devices: []dataplane.Device{device}}
	}

	switch {
	case e.connectErr != nil:
		v.unconnected = fmt.Sprintf("it is in state %v, without a peer: %v", e.state, e.connectErr)
	case (e.state == ibv.QPSErr || e.state == ibv.QPSSQE) && !e.reconnecting:
		v.failed = fmt.Sprintf("it is in state %v: %v", e.state, e.fault)
	}
	return v
}
