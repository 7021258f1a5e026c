package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/shm"
)

// endpoint is what a queue pair is made of, as long as its device is there. Nothing of it
// is shared with another queue pair, so that none can hold another one up.
type endpoint struct {
	ctx    *ibv.Context
	port   ibv.PortAttr
	pd     *ibv.PD
	own    *ibv.MR // what is sent, and where all that arrives lands: nobody reads it
	shared *ibv.MR // what the peer may read and write; rc only
	cq     *ibv.CQ
	qp     *ibv.QP
	ah     *ibv.AH // to the peer; ud only
	census census

	local    dataplane.QueuePairAddress
	state    ibv.QPState
	message  int               // bytes
	room     int               // for a message that arrives
	posted   int               // receives
	mute     int               // looks in a row at which the device did not answer
	renewing bool              // it is in ERR on its way to another connection
	slots    []*shm.DeviceSlot // that the device counts in, and may until ctx is closed
	mode     string
	rejected []dataplane.Rejection
	polled   []backend.Pair     // the totals by what ibv_poll_cq took off, of operations that it sees
	fault    fault              // the first completion in error since it was connected
	loose    error              // why it could not be connected, which left it without a peer
	broken   error              // why its source is not the one that it began with
	failed   census             // that source, until the queue pair is gone
	deaf     context.CancelFunc // ends listen
}

const (
	// grh is what a datagram's buffer has before the message: the global route header.
	grh = 40
	// defaultMessage is a message's size where the configuration names none.
	defaultMessage = 4096
)

func qpType(t dataplane.QueuePairType) ibv.QPType {
	switch t {
	case dataplane.UD:
		return ibv.QPTUD
	case dataplane.RawPacket:
		return ibv.QPTRawPacket
	}
	return ibv.QPTRC
}

// make opens the device and makes the queue pair there, counted by the best source that is
// to be had, with its receives posted: in INIT if it needs a peer to go on, else in RTS. It is
// called before the goroutine runs, or by it.
func (q *queuePair) make() (err error) {
	e := &endpoint{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.ctx, err = q.set.open(q.cfg.Device); err != nil {
		return err
	}
	if err := q.measure(e); err != nil {
		return err
	}
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		return err
	}
	if e.own, err = e.pd.AllocMR(max(e.message, e.room), ibv.AccessLocalWrite); err != nil {
		return err
	}
	if q.cfg.Type == dataplane.RC {
		if e.shared, err = e.pd.AllocMR(e.message, remoteAccess|ibv.AccessLocalWrite); err != nil {
			return err
		}
		e.local.Addr, e.local.RKey = e.shared.Addr(), e.shared.RKey()
	}
	if err := q.choose(e); err != nil {
		return err
	}
	e.local.QPN, e.local.PSN = e.qp.Number(), newPSN()
	if q.cfg.Type == dataplane.UD {
		e.local.QKey = newQKey()
	}
	if err := q.begin(e); err != nil {
		return err
	}
	q.end, q.gone, q.peer = e, nil, dataplane.QueuePairAddress{}
	q.show()
	return nil
}

// remoteAccess is what the peer may do to the buffer that it is told of.
const remoteAccess = ibv.AccessRemoteWrite | ibv.AccessRemoteRead

// measure asks the port what it is, and how large a message can be.
func (q *queuePair) measure(e *endpoint) (err error) {
	dev, err := e.ctx.QueryDevice()
	if err != nil {
		return err
	}
	if n := dev.PhysPortCnt; q.cfg.Port > n { // ibv_query_port says EINVAL of it, and no more
		has := fmt.Sprintf("the ports of %s are 1 to %d", q.cfg.Device, n)
		if n == 1 {
			has = fmt.Sprintf("the only port of %s is 1", q.cfg.Device)
		}
		return fmt.Errorf("port is %d, and %s: correct `port` of the queue pair in the configuration: %w", q.cfg.Port, has, dataplane.ErrInvalid)
	}
	if e.port, err = e.ctx.QueryPort(q.cfg.Port); err != nil {
		return err
	}
	if n := e.port.GIDTblLen; q.cfg.GIDIndex > 0 && q.cfg.GIDIndex >= n {
		return fmt.Errorf("port %d has %d GIDs, and gid_index is %d: see `ibv_devinfo -v`: %w", q.cfg.Port, n, q.cfg.GIDIndex, dataplane.ErrInvalid)
	}
	e.local.LID = e.port.LID
	if q.cfg.Type != dataplane.RawPacket {
		gid, err := e.ctx.QueryGID(q.cfg.Port, q.cfg.GIDIndex)
		if err != nil {
			return err
		}
		if gid != (ibv.GID{}) {
			e.local.GID = netip.AddrFrom16(gid)
		} else if e.port.LID == 0 {
			return fmt.Errorf("GID %d of port %d is empty, and the port, in state %v, has no LID: bring its link up, or name a gid_index that `ibv_devinfo -v` shows: %w",
				q.cfg.GIDIndex, q.cfg.Port, e.port.State, dataplane.ErrInvalid)
		}
	}
	e.message = q.cfg.MessageSize
	switch most := e.port.ActiveMTU.Bytes(); {
	case e.message == 0 && q.cfg.Type == dataplane.UD && most > 0:
		e.message = min(defaultMessage, most)
	case e.message == 0:
		e.message = defaultMessage
	case q.cfg.Type == dataplane.UD && most > 0 && e.message > most:
		return fmt.Errorf("message_size %d: a datagram of the port holds %d bytes: %w", e.message, most, dataplane.ErrInvalid)
	}
	e.room = e.message
	if q.cfg.Type == dataplane.UD {
		e.room += grh
	}
	if n := max(q.cfg.SendDepth, q.cfg.Receives); n > dev.MaxQPWR {
		return fmt.Errorf("send_depth %d, receives %d: a queue of the device holds %d: %w", q.cfg.SendDepth, q.cfg.Receives, dev.MaxQPWR, dataplane.ErrInvalid)
	}
	return nil
}

// queues makes the completion queue and the queue pair, in RESET. The completion queue holds
// all that can be outstanding, so that it never overruns, and one batch more: what was
// taken off is written over only when the next batch was.
func (q *queuePair) queues(e *endpoint) (err error) {
	e.cq, err = e.ctx.CreateCQ(ibv.CQOptions{CQE: q.cfg.SendDepth + q.cfg.Receives + wcBatch})
	if err != nil {
		return err
	}
	e.qp, err = e.pd.CreateQP(ibv.QPOptions{
		Type: qpType(q.cfg.Type), SendCQ: e.cq, RecvCQ: e.cq, SignalAll: true,
		Cap: ibv.QPCap{MaxSendWR: uint32(q.cfg.SendDepth), MaxRecvWR: uint32(max(q.cfg.Receives, 1)), MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	return err
}

// unqueue is the inverse. Counters of the device go when nothing holds them any more, and
// the memory of the completion queue is not looked at when it is gone.
func (e *endpoint) unqueue() error {
	var errs []error
	both := slices.DeleteFunc([]census{e.census, e.failed}, func(c census) bool { return c == nil })
	for _, c := range both {
		errs = append(errs, c.leave())
	}
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	for _, c := range both {
		errs = append(errs, c.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	e.qp, e.census, e.failed, e.cq = nil, nil, nil, nil
	return errors.Join(errs...)
}

// close takes everything down, in the order of what holds what.
func (e *endpoint) close() error {
	if e.deaf != nil {
		e.deaf()
	}
	errs := []error{e.unqueue()}
	if e.ah != nil {
		errs = append(errs, e.ah.Close())
	}
	for _, m := range []*ibv.MR{e.own, e.shared} {
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
	err := e.ctx.Close()
	if err == nil { // whatever else it refused: nothing of it is left
		for _, s := range e.slots {
			s.Free()
		}
	}
	return errors.Join(append(errs, err)...)
}

// unmake takes the endpoint down, if there is one. Its goroutine has ended, or calls it.
func (q *queuePair) unmake() error {
	e := q.end
	if e == nil {
		return nil
	}
	q.end = nil
	q.outstanding.Store(0)
	return e.close()
}
