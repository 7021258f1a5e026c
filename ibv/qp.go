package ibv

import (
	"fmt"
	"syscall"
)

// QPType is enum ibv_qp_type.
type QPType uint32

// The types of queue pair offered by this package.
const (
	QPTRC        QPType = 2 // reliable connection
	QPTUD        QPType = 4 // unreliable datagram
	QPTRawPacket QPType = 8 // Ethernet frames; needs CAP_NET_RAW

	// QPTSRD is IBV_QPT_DRIVER: the scalable reliable datagrams of EFA devices. It needs libefa.
	QPTSRD QPType = 255
)

func (t QPType) String() string {
	if t == QPTSRD {
		return "SRD"
	}
	return name("QP type", t, "0", "1", "RC", "UC", "UD", "5", "6", "7", "RAW_PACKET")
}

// QPCap is struct ibv_qp_cap: the capacity of the two queues.
type QPCap struct {
	MaxSendWR     uint32 // outstanding send requests
	MaxRecvWR     uint32
	MaxSendSGE    uint32 // segments of one request; this package only posts one
	MaxRecvSGE    uint32
	MaxInlineData uint32 // bytes of a request with SendInline
}

// QPOptions is struct ibv_qp_init_attr. SendCQ and RecvCQ may be one queue.
type QPOptions struct {
	Type      QPType
	SendCQ    *CQ
	RecvCQ    *CQ
	Cap       QPCap // at least; Query returns the actual capacity
	SignalAll bool  // make a completion for every send, not only for those with SendSignaled
}

// QP is a queue pair. It begins in state RESET. Use [QP.Modify] to move it to RTR, where it receives, and RTS,
// where it also sends.
type QP struct {
	object
	ctx    *Context
	pd     *PD
	typ    QPType
	number uint32
	efa    efa // type SRD: the library, whose code runs in PostSend; otherwise nil
}

// CreateQP makes a queue pair. It holds the domain and both completion queues. Both queues are required, for
// libibverbs makes no queue pair of these types without them. It returns EINVAL for more capacity than the
// device has, and EPERM for type RAW_PACKET without CAP_NET_RAW.
func (p *PD) CreateQP(o QPOptions) (*QP, error) {
	if o.SendCQ == nil || o.RecvCQ == nil {
		return nil, p.ctx.err("ibv_create_qp", syscall.EINVAL)
	}

	q := &QP{ctx: p.ctx, pd: p, typ: o.Type}
	err := q.init("queue pair", p.device, func() (h handle, err error) {
		if o.Type == QPTSRD {
			return q.createSRD(&o)
		}
		h, number, errno := p.ctx.v.createQP(p.h, o.SendCQ.h, o.RecvCQ.h, &o)
		q.number = number
		return h, p.ctx.err("ibv_create_qp", errno)
	}, &p.object, &o.SendCQ.object, &o.RecvCQ.object)
	if err != nil {
		return nil, err
	}
	remember(p.ctx, p.ctx.qpByHandle, q.h, q)
	return q, nil
}

// Number returns the number of the queue pair (24 bits). Peers need it to send to the queue pair.
func (q *QP) Number() uint32 { return q.number }

// Modify sets the attributes named by mask. The device checks the change of state. If it returns EINVAL, the
// error also names the attributes that the manual requires and mask lacks.
func (q *QP) Modify(a QPAttr, mask QPAttrMask) error {
	if err := q.use(); err != nil {
		return err
	}
	defer q.done()

	errno := q.ctx.v.modifyQP(q.h, &a, mask)
	err := q.ctx.err("ibv_modify_qp", errno)
	if errno != syscall.EINVAL {
		return err
	}
	return q.explainModify(err, a, mask)
}

// explainModify adds the manual's rule to the device's EINVAL.
func (q *QP) explainModify(err error, a QPAttr, mask QPAttrMask) error {
	from := a.CurState
	if mask&QPAttrCurState == 0 {
		now, errno := q.ctx.v.queryQP(q.h, QPAttrState)
		if errno != 0 {
			return err
		}
		from = now.State
	}

	to := from
	if mask&QPAttrState != 0 {
		to = a.State
	}

	if why := checkModify(q.typ, from, to, mask); why != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// Query reads the attributes named by mask, and possibly more.
func (q *QP) Query(mask QPAttrMask) (QPAttr, error) {
	if err := q.use(); err != nil {
		return QPAttr{}, err
	}
	defer q.done()

	a, errno := q.ctx.v.queryQP(q.h, mask)
	return a, q.ctx.err("ibv_query_qp", errno)
}

// Close destroys the queue pair and detaches its completion counters. Flows hold it: close them first.
func (q *QP) Close() error {
	return q.close(func(h handle) error {
		if err := q.ctx.err("ibv_destroy_qp", q.ctx.v.destroyQP(h)); err != nil {
			return err
		}
		forget(q.ctx, q.ctx.qpByHandle, h, q)
		if q.efa != nil {
			q.efa.unload()
		}
		return nil
	})
}
