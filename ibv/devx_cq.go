package ibv

import (
	"fmt"
	"syscall"

	"github.com/flowtally/flowtally/ibv/flexio"
)

// DevXCQOptions are the attributes of a completion queue made by the firmware command CREATE_CQ. An error of
// [DevX.CreateCQ] names them as flexio_cq_attr of reference 004 does.
type DevXCQOptions struct {
	UMEM     *UMEM
	Ring     uint64 // cq_ring_qmem: offset in the umem of 2^LogSize entries of 64 bytes, a multiple of 64
	Doorbell uint64 // cq_dbr_daddr: offset in the umem of the doorbell record, 8 bytes at a multiple of 8
	UAR      *UAR
	EQN      uint32 // of QueryEQN
	LogSize  uint8  // log_cq_depth

	// Collapsed has the device write each entry to the first slot. It has no use without IgnoreOverrun: the queue
	// fails after 2^LogSize completions otherwise, unless the doorbell record moves.
	Collapsed     bool // cc
	IgnoreOverrun bool // overrun_ignore
}

// umemBase stands for the address of the umem. The attributes have the doorbell record at an address, which is never 0,
// and the command has its offset.
const umemBase = 1 << 32

// command returns the input of CREATE_CQ. The queue has no receiver of events.
func (o DevXCQOptions) command() ([]byte, error) {
	attr := flexio.Values{
		"log_cq_depth":   o.LogSize,
		"element_type":   "none",
		"uar_id":         o.UAR.page,
		"cc":             o.Collapsed,
		"overrun_ignore": o.IgnoreOverrun,
		"cq_ring_qmem":   flexio.Values{"memtype": "FLEXIO_MEMTYPE_HOST", "umem_id": o.UMEM.id, "humem_offset": o.Ring},
		"cq_dbr_daddr":   umemBase + o.Doorbell,
	}
	return flexio.CreateCQ(attr, flexio.CQPlacement{
		EQN:        o.EQN,
		HeapBase:   umemBase,
		HeapSize:   uint64(len(o.UMEM.mem)),
		HeapUMEMID: o.UMEM.id,
	})
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

// CreateCQ makes a completion queue by the command of [flexio.CreateCQ]. It holds the umem and the UAR.
func (d *DevX) CreateCQ(o DevXCQOptions) (*DevXCQ, error) {
	const verb = "mlx5dv_devx_obj_create (CREATE_CQ)"
	if o.UMEM == nil || o.UAR == nil {
		return nil, fmt.Errorf("%w: a completion queue needs a umem and a UAR", d.ctx.err(verb, syscall.EINVAL))
	}
	q := &DevXCQ{dx: d, umem: o.UMEM, db: o.Doorbell}
	err := q.init("completion queue", d.device, func() (handle, error) {
		in, err := o.command()
		if err != nil {
			return 0, fmt.Errorf("%s: encoding CREATE_CQ: %w", d.device, err)
		}

		var out queueOut
		h, err := d.createObject("CREATE_CQ", in, &out)
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
