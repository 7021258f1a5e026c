package ibv

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/flowtally/flowtally/probe"
)

// MLX5CQ is struct mlx5dv_cq: the memory of a completion queue. The device writes to it. The library unmaps it
// with the queue, so do not touch it after Close.
type MLX5CQ struct {
	Buf      []byte  // CQECount entries of CQESize bytes; package ibv/flexio walks them
	DBRec    *uint32 // the doorbell record, big endian: see SetConsumerIndex
	CQN      uint32  // the firmware's number of the queue
	CQESize  int     // 64 or 128
	CQECount int     // a power of two
}

// SetConsumerIndex allows the device to overwrite entries. taken is the number of entries taken since the
// queue was made, mod 2^32; the record has 24 bits. The store has release order, so loads of the entries
// cannot move behind it.
func (r MLX5CQ) SetConsumerIndex(taken uint32) {
	var be [4]byte
	binary.BigEndian.PutUint32(be[:], taken&0xffffff)
	atomic.StoreUint32(r.DBRec, binary.NativeEndian.Uint32(be[:]))
}

// MLX5Compression is enum mlx5dv_cqe_comp_res_format: the content of the first half of a mini-CQE, for
// receives.
type MLX5Compression uint8

// The formats. 0 means no compression.
const (
	MLX5CompressHash MLX5Compression = 1 << iota
	MLX5CompressCsum
	MLX5CompressCsumStrIdx
)

// MLX5CQOptions are the attributes of a completion queue of an mlx5 device.
type MLX5CQOptions struct {
	CQOptions
	EntrySize   int // 64 or 128; 0: 64
	Compression MLX5Compression
}

// CreateMLX5CQ makes a completion queue by mlx5dv_create_cq(3). It returns a [probe.UnsupportedError] if
// there is no libmlx5, or if the device is no mlx5 device.
//
// With Compression the device may compress consecutive completions. [CQ.Poll] cannot read compressed
// entries. Before each call, the caller must expand the next len(dst) entries in the ring: see
// RingOptions.Expand of package ibv/flexio.
func (c *Context) CreateMLX5CQ(o MLX5CQOptions) (*CQ, error) {
	if o.CQE == 0 {
		o.CQE = 16
	}
	if o.EntrySize == 0 {
		o.EntrySize = 64
	}

	const feature = "a completion queue of mlx5dv_create_cq"
	m, err := c.loadMLX5(feature)
	if err != nil {
		return nil, err
	}

	q := &CQ{ctx: c, mlx5: m}
	err = q.init("completion queue", c.device, func() (handle, error) {
		if !m.supported(c.h) {
			return 0, notMLX5(feature, c.device)
		}
		h, cqe, errno := m.createCQ(c.h, o)
		q.cqe = cqe
		return h, c.err("mlx5dv_create_cq", errno)
	}, &c.object)
	if err != nil {
		m.unload()
		return nil, err
	}
	remember(c, c.cqByHandle, q.h, q)
	return q, nil
}

// notMLX5 is the error for a device of another provider.
func notMLX5(feature, device string) error {
	return &probe.UnsupportedError{Feature: feature, Object: device, Reason: "the device is not one of mlx5"}
}

const featureRing = "the ring of a completion queue"

// MLX5Ring returns the ring behind a completion queue of an mlx5 device, by mlx5dv_init_obj(3). It returns a
// [probe.UnsupportedError] if there is no libmlx5, or if the device is no mlx5 device.
//
// Callers must still poll: the library reuses a slot of a send or receive queue only after Poll has returned
// its completion. They may count completions in the ring before polling them. Whoever does not poll must move
// the consumer index instead.
//
// After MLX5Ring, the library no longer removes completions of a queue pair from the ring when the queue pair
// is reset or closed. So empty the ring first.
func (q *CQ) MLX5Ring() (MLX5CQ, error) {
	if err := q.use(); err != nil {
		return MLX5CQ{}, err
	}
	defer q.done()

	q.mlx5Mu.Lock()
	defer q.mlx5Mu.Unlock()
	if q.mlx5 == nil {
		m, err := q.ctx.loadMLX5(featureRing)
		if err != nil {
			return MLX5CQ{}, err
		}
		if !m.supported(q.ctx.h) {
			m.unload()
			return MLX5CQ{}, notMLX5(featureRing, q.device)
		}
		q.mlx5 = m // keep it open until Close, because the ring belongs to the library
	}

	ring, errno := q.mlx5.cqRing(q.h)
	return ring, q.ctx.err("mlx5dv_init_obj", errno)
}

// sound reports whether the numbers from the library can describe a ring.
func (r MLX5CQ) sound() bool {
	n := r.CQECount
	return r.DBRec != nil && (r.CQESize == 64 || r.CQESize == 128) && n > 0 && n&(n-1) == 0
}
