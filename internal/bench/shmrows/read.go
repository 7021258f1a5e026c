package shmrows

import (
	"context"
	"sync/atomic"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

// sums keeps the values that loops read, so that no compiler leaves the reads out.
type sums struct {
	packets, bytes uint64
	sampledAt      int64
}

// openRead: HandleCounter.Load of a counter of a block, writer idle, against a counter
// without any protection. The same loop reads both through a handle, and both
// Loads are inlined.
func openRead(context.Context, bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		m, err := newMirror(open, shm.BlockLen, 0)
		if err != nil {
			return nil, err
		}
		c, err := m.r.Counter(m.handles[17])
		if err != nil {
			return nil, err
		}
		bare := &bareCounter{cur: new(bareWords)}
		sink := new(sums)
		return &bench.Sides{
			Ours: bench.Timed(bench.ThreadCPU, func(n int) { *sink = load(&c, n) }),
			Ref:  bench.Timed(bench.ThreadCPU, func(n int) { *sink = loadBare(bare, n) }),
		}, nil
	})
}

// bareWords is a value without protection, on a cache line of its own.
type bareWords struct {
	packets, bytes, sampledAt uint64
	_                         [5]uint64
}

// bareCounter is a counter as it would be if no read could be torn and no slot
// reused.
type bareCounter struct{ cur *bareWords }

// Load is three atomic loads.
func (c *bareCounter) Load() (shm.Value, error) {
	p := c.cur
	return shm.Value{
		Packets:   atomic.LoadUint64(&p.packets),
		Bytes:     atomic.LoadUint64(&p.bytes),
		SampledAt: int64(atomic.LoadUint64(&p.sampledAt)),
	}, nil
}

//go:noinline
func loadBare(c *bareCounter, n int) (s sums) {
	for range n {
		v, err := c.Load()
		if err != nil {
			return sums{}
		}
		s.packets += v.Packets
		s.bytes += v.Bytes
		s.sampledAt += v.SampledAt
	}
	return s
}

//go:noinline
func load(c *shm.HandleCounter, n int) (s sums) {
	for range n {
		v, err := c.Load()
		if err != nil {
			return sums{}
		}
		s.packets += v.Packets
		s.bytes += v.Bytes
		s.sampledAt += v.SampledAt
	}
	return s
}
