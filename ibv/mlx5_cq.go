package ibv

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/flowtally/flowtally/probe"
)

// MLX5CQ is struct mlx5dv_cq: the memory of a completion queue, which the device writes. The memory
// belongs to the library and is unmapped with the queue, so it must not be touched after Close.
type MLX5CQ struct {
	Buf      []byte  // CQECount entries of CQESize bytes; package ibv/flexio walks them
	DBRec    *uint32 // the doorbell record, big endian: see SetConsumerIndex
	CQN      uint32  // the number by which firmware knows the queue
	CQESize  int     // 64 or 128
	CQECount int     // a power of two
}

// SetConsumerIndex tells the device how many entries were taken since the queue was made, mod 2^32,
// so that it may write over them. It is a store with release order: the loads of their contents come
// before it. The record holds 24 bits.
func (r MLX5CQ) SetConsumerIndex(taken uint32) {
	var be [4]byte
	binary.BigEndian.PutUint32(be[:], taken&0xffffff)
	atomic.StoreUint32(r.DBRec, binary.NativeEndian.Uint32(be[:]))
}

// MLX5Compression is enum mlx5dv_cqe_comp_res_format: the content of the first half of a receive's
// mini-CQE.
type MLX5Compression uint8

// The formats. 0: entries are not compressed.
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

// CreateMLX5CQ makes a completion queue by mlx5dv_create_cq(3). It returns a
// [probe.UnsupportedError] if libmlx5 is absent or the device is not an mlx5 device.
//
// With Compression the device may compress consecutive completions. [CQ.Poll] cannot read compressed
// entries: before each call the caller expands the entries that the call is to take, in the ring
// (package ibv/flexio).
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

// notMLX5 says that the device is another provider's.
func notMLX5(feature, device string) error {
	return &probe.UnsupportedError{Feature: feature, Object: device, Reason: "the device is not one of mlx5"}
}

const featureRing = "the ring of a completion queue"

// MLX5Ring returns the ring behind a completion queue of an mlx5 device, by mlx5dv_init_obj(3). It
// returns a [probe.UnsupportedError] if libmlx5 is absent or the device is not an mlx5 device.
//
// Poll still takes completions off the ring, and must: a slot of a send or receive queue is free
// again only when Poll has seen its completion. The caller may count the completions in the ring
// before that, or move the consumer index without Poll. After this call the library leaves
// completions of a queue pair that was reset or closed in the ring, so empty the ring first.
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
		q.mlx5 = m // until Close, because the ring is the library's
	}

	ring, errno := q.mlx5.cqRing(q.h)
	return ring, q.ctx.err("mlx5dv_init_obj", errno)
}

// sound reports whether the library's numbers can describe a ring.
func (r MLX5CQ) sound() bool {
	n := r.CQECount
	return r.DBRec != nil && (r.CQESize == 64 || r.CQESize == 128) && n > 0 && n&(n-1) == 0
}
