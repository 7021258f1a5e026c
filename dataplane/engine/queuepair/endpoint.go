package queuepair

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"syscall"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
)

// endpoint is the verbs objects of a queue pair on its present device. It shares no object with another queue
// pair, so none can delay another. Only the worker's goroutine may use it, except for ctx, on which listen waits
// for events.
type endpoint struct {
	*queuePair
	ctx    *ibv.Context
	port   ibv.PortAttr
	pd     *ibv.PD
	buffer *ibv.MR // for sends and arriving messages alike: nobody reads the content
	remote *ibv.MR // open to the peer's reads and writes; rc and srd only
	cq     *ibv.CQ
	qp     *ibv.QP
	// With source collapsed_cq these two take the place of cq and qp, and pd belongs to dx.
	dx        *ibv.DevX
	collapsed *collapsedPair
	ah        *ibv.AH // to the peer; ud and srd only

	// The connection.
	local        dataplane.QueuePairAddress
	peer         dataplane.QueuePairAddress
	state        ibv.QPState
	reconnecting bool  // in ERR only on the way to a new connection
	fault        fault // first completion in error since the queue pair was connected
	connectErr   error // why connecting failed and left the queue pair without a peer, or nil

	// The device.
	mostRequests int                // of a queue, as the device says
	unanswered   int                // failed checks of the device in a row
	cancelEvents context.CancelFunc // ends listen

	// The messages.
	remoteAccess ibv.AccessFlags // of the peer to the remote buffer
	messageSize  int             // bytes
	receiveSize  int             // bytes of a buffer for an arriving message
	receives     int             // posted, and not completed
	recv         [wrBatch]ibv.RecvWR

	// The counting.
	source       completionSource
	mode         string // of source
	rejected     []dataplane.Rejection
	polled       []backend.Pair    // totals of the polled completions
	slots        []*shm.DeviceSlot // the device may write to them until ctx is closed
	sourceErr    error             // why the first source was replaced, or nil
	failedSource completionSource  // the replaced source; its counters stay attached until the queue pair is destroyed
}

const (
	wcBatch = 64 // most completions polled by one call
	wrBatch = 64 // most work requests posted by one call

	// grhSize is the size of the global route header. It precedes the message in the buffer of a datagram.
	grhSize = 40

	// defaultMessageSize is the size of a message if the configuration has no message_size.
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

// newEndpoint opens the device and makes the queue pair there, with the best source offered by the device. The
// receives are posted, and the queue pair is in the state of leaveReset. totals are the completions of the
// earlier endpoints.
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

	e.local.QPN = e.pair().Number()
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
	if e.wantsCollapsed() {
		if err := e.openDevX(); err != nil {
			return fmt.Errorf("%w: %s: %w", dataplane.ErrUnplaced, dataplane.SourceCollapsedCQ, err)
		}
	} else if e.pd, err = e.ctx.AllocPD(); err != nil {
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

// queryDevice reads the attributes of the device and its port, and checks the configuration against them. The
// device would refuse most of these mistakes with a bare EINVAL.
func (e *endpoint) queryDevice() (err error) {
	dev, err := e.ctx.QueryDevice()
	if err != nil {
		return err
	}
	if n := dev.PhysPortCnt; e.cfg.Port > n {
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
	e.mostRequests = dev.MaxQPWR
	if n := max(e.cfg.SendDepth, e.cfg.Receives); n > dev.MaxQPWR {
		return fmt.Errorf("send_depth is %d and receives %d, and a queue of the device holds %d: lower them in the configuration: %w",
			e.cfg.SendDepth, e.cfg.Receives, dev.MaxQPWR, dataplane.ErrInvalid)
	}
	return nil
}

// setMessageSize sets the size of messages: the configured one, or the default if it fits into a datagram.
func (e *endpoint) setMessageSize() error {
	most := e.port.ActiveMTU.Bytes()
	if e.cfg.Type == dataplane.SRD { // the device splits messages, so the port's largest message counts, not the MTU
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
		return fmt.Errorf("message_size is %d, and a datagram of the port holds %d bytes: lower it in the configuration: %w",
			e.messageSize, most, dataplane.ErrInvalid)
	}

	e.receiveSize = e.messageSize
	if e.cfg.Type == dataplane.UD {
		e.receiveSize += grhSize
	}
	return nil
}

// queryOperations reads which access a peer can have to the remote buffer. An EFA device may lack RDMA writes, or
// reads as well, and refuses to register memory for an operation that it lacks.
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

// lacks returns an error if the device has no such operation: see queryOperations.
func (e *endpoint) lacks(op dataplane.Operation) error {
	var access ibv.AccessFlags
	switch op {
	case dataplane.RDMAWrite:
		access = ibv.AccessRemoteWrite
	case dataplane.RDMARead:
		access = ibv.AccessRemoteRead
	}
	if !e.cfg.Type.RDMA() || e.remoteAccess&access == access {
		return nil
	}
	return &probe.UnsupportedError{
		Feature: string(op),
		Object:  e.cfg.Device,
		Reason:  "efadv_query_device does not name it: the device lacks it, or this libefa does not know it (rdma-core 44 knows no rdma_write)",
		Fix:     "post send, or install a newer rdma-core where the device has it",
	}
}

// queryAddress reads the LID and the GID of the port. A port with neither cannot be reached.
func (e *endpoint) queryAddress() error {
	if n := e.port.GIDTblLen; e.cfg.GIDIndex > 0 && e.cfg.GIDIndex >= n {
		return fmt.Errorf("gid_index is %d, and the GID table of port %d of %s has %s: %w", e.cfg.GIDIndex, e.cfg.Port, e.cfg.Device, rowsOf(n), dataplane.ErrInvalid)
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

// pair is the queue pair, of the verbs or of DevX.
type pair interface {
	Number() uint32
	Modify(a ibv.QPAttr, mask ibv.QPAttrMask) error
	Query(mask ibv.QPAttrMask) (ibv.QPAttr, error)
	PostSend(wrs []ibv.SendWR) (int, error)
	PostRecv(wrs []ibv.RecvWR) (int, error)
}

func (e *endpoint) pair() pair {
	if e.collapsed != nil {
		return e.collapsed
	}
	return e.qp
}

// poll fills dst with completions, and returns their number.
func (e *endpoint) poll(dst []ibv.WC) (int, error) {
	if e.collapsed != nil {
		return e.collapsed.poll(dst)
	}
	return e.cq.Poll(dst)
}

// rowsOf describes a GID table of n rows, and says which row to configure.
func rowsOf(n int) string {
	if n == 1 {
		return "row 0 alone: set `gid_index: 0` of the queue pair in the configuration"
	}
	return fmt.Sprintf("the rows 0 to %d: set `gid_index` of the queue pair to one that `ibv_devinfo -v` shows", n-1)
}

// createQueues makes the completion queue and the queue pair, in RESET. The completion queue has an entry for
// every operation that can be outstanding, so it never overruns. It has one batch more for ringSource: the device
// must not overwrite a polled completion before we have read it in the ring.
func (e *endpoint) createQueues() (err error) {
	if e.wantsCollapsed() {
		p, err := newCollapsedPair(e.dx, e.pd, e.cfg.SendDepth, max(e.cfg.Receives, 1))
		if err != nil {
			return fmt.Errorf("%w: %s: %w", dataplane.ErrUnplaced, dataplane.SourceCollapsedCQ, collapsedError(e.cfg.Device, err))
		}
		e.collapsed = p
		return nil
	}
	e.cq, err = e.ctx.CreateCQ(ibv.CQOptions{CQE: e.cfg.SendDepth + e.cfg.Receives + wcBatch})
	if err != nil {
		return e.refusedDepth(err)
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
	if err != nil {
		return e.refusedDepth(e.refusedType(err))
	}
	return nil
}

// refusedDepth adds the next step to the error of a device that has no room for so long queues. Its limit max_qp_wr is that of
// requests of 64 bytes. libmlx5 reserves four times that for each request of a reliable connection.
func (e *endpoint) refusedDepth(err error) error {
	fits := e.mostRequests / 4
	if max(e.cfg.SendDepth, e.cfg.Receives) <= fits || !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOMEM) {
		return err
	}
	return fmt.Errorf("send_depth is %d and receives %d, and the device, whose limit of %d is that of the shortest requests, has no such queues: set them to at most %d in the configuration: %w",
		e.cfg.SendDepth, e.cfg.Receives, e.mostRequests, fits, err)
}

// destroyQueues undoes createQueues. The order matters: readers leave the device's words first; then the queue
// pair goes, which holds the counters; then the counters; and last the completion queue, whose memory a source may
// read until it is closed.
func (e *endpoint) destroyQueues() error {
	var errs []error
	both := slices.DeleteFunc([]completionSource{e.source, e.failedSource}, func(s completionSource) bool { return s == nil })
	for _, s := range both {
		errs = append(errs, s.hideWords())
	}
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	if e.collapsed != nil {
		errs = append(errs, e.collapsed.Close())
	}
	for _, s := range both {
		errs = append(errs, s.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	e.qp, e.collapsed, e.source, e.failedSource, e.cq = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

// close destroys all objects, each before the ones on which it depends.
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
	if e.dx != nil {
		errs = append(errs, e.dx.Close())
	}
	if e.ctx == nil {
		return errors.Join(errs...)
	}

	// Whatever failed before: once the context is closed, no object of the device is left to write to the slots.
	err := e.ctx.Close()
	if err == nil {
		for _, s := range e.slots {
			s.Free()
		}
	}
	return errors.Join(append(errs, err)...)
}

// postReceives posts n buffers for arriving messages. All of them are one piece of memory, which is pinned once:
// nobody reads the messages, so they may overwrite each other.
func (e *endpoint) postReceives(n int) error {
	wr := ibv.RecvWR{
		WRID: wrID(0, opRecv),
		SGE:  ibv.SGE{Addr: e.buffer.Addr(), Length: uint32(e.receiveSize), LKey: e.buffer.LKey()},
	}
	for i := range e.recv[:min(n, len(e.recv))] {
		e.recv[i] = wr
	}

	for n > 0 {
		posted, err := e.pair().PostRecv(e.recv[:min(n, len(e.recv))])
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
