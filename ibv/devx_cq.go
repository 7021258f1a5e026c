package ibv

import (
	"fmt"
	"syscall"
)

// DevXCQOptions are the attributes of a completion queue made by the firmware command CREATE_CQ.
type DevXCQOptions struct {
	UMEM     *UMEM
	Ring     uint64 // offset in the umem of 2^LogSize entries of 64 bytes, a multiple of 64
	Doorbell uint64 // offset in the umem of the doorbell record, 8 bytes at a multiple of 8
	UAR      *UAR
	EQN      uint32 // of QueryEQN
	LogSize  uint8

	// Collapsed has the device write each entry to the first slot. It has no use without IgnoreOverrun: the queue
	// fails after 2^LogSize completions otherwise, unless the doorbell record moves.
	Collapsed     bool // cc
	IgnoreOverrun bool // oi
}

// DevXCQ is a completion queue made by DevX. Only queue pairs made by DevX may use it, because ibv_create_qp takes
// none. The device writes its entries to the umem: package ibv/flexio reads them. It sends no events.
type DevXCQ struct {
	object
	dx   *DevX
	umem *UMEM
	db   uint64 // offset of the doorbell record
	cqn  uint32
}

// CreateCQ makes a completion queue. It holds the umem and the UAR.
func (d *DevX) CreateCQ(o DevXCQOptions) (*DevXCQ, error) {
	const verb = "mlx5dv_devx_obj_create (CREATE_CQ)"
	if o.UMEM == nil || o.UAR == nil {
		return nil, fmt.Errorf("%w: a completion queue needs a umem and a UAR", d.ctx.err(verb, syscall.EINVAL))
	}
	q := &DevXCQ{dx: d, umem: o.UMEM, db: o.Doorbell}
	err := q.init("completion queue", d.device, func() (handle, error) {
		var out queueOut
		h, err := d.createObject("CREATE_CQ", createQueueInSize, &createCQIn{
			CC: o.Collapsed, OI: o.IgnoreOverrun, LogSize: o.LogSize, UARPage: o.UAR.page, EQN: o.EQN,
			RingUMEM: o.UMEM.id, RingOffset: o.Ring, DBRUMEM: o.UMEM.id, DBROffset: o.Doorbell,
		}, &out)
		q.cqn = out.Number
		return h, err
	}, &d.object, &o.UMEM.object, &o.UAR.object)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// Number returns the firmware's number of the queue.
func (q *DevXCQ) Number() uint32 { return q.cqn }

// SetConsumerIndex allows the device to overwrite entries. taken is the number of entries taken since the queue was made, mod
// 2^32. Loads of the entries cannot move behind the store. On a closed queue it does nothing.
func (q *DevXCQ) SetConsumerIndex(taken uint32) {
	if q.use() != nil {
		return
	}
	defer q.done()
	record := q.umem.mem[q.db:][:4]
	q.dx.m.doorbell(record, taken&0xffffff, 0, record)
}

// Close destroys the queue. Queue pairs hold it: close them first.
func (q *DevXCQ) Close() error {
	return q.close(func(h handle) error {
		return q.dx.ctx.err("mlx5dv_devx_obj_destroy (DESTROY_CQ)", q.dx.m.destroyObject(h))
	})
}
