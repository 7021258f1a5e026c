package shmrows

import (
	"context"
	"sync/atomic"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

// sums keeps what loops read, so that no compiler leaves the reading out.
type sums struct {
	packets, bytes uint64
	sampledAt      int64
}

// openRead: Counter.Load of a counter of a block, writer idle, against three
// atomic loads of words on one cache line. Both loops are of one form: a
// pointer, three sums.
func openRead(context.Context, bench.Env) (*bench.Sides, error) {
	return sides(func(open *closers) (*bench.Sides, error) {
		m, err := newMirror(open, shm.BlockLen, 0)
		if err != nil {
			return nil, err
		}
		c, err := m.r.Counter(m.handles[17])
		if err != nil {
			return nil, err
		}
		words := new(bareWords)
		sink := new(sums)
		return &bench.Sides{
			Ours: bench.Timed(bench.ThreadCPU, func(n int) { *sink = load(&c, n) }),
			Ref:  bench.Timed(bench.ThreadCPU, func(n int) { *sink = bareLoads(words, n) }),
		}, nil
	})
}

// bareWords is a value without protection, on a cache line of its own.
type bareWords struct {
	packets, bytes, sampledAt uint64
	_                         [5]uint64
}

//go:noinline
func bareLoads(p *bareWords, n int) (s sums) {
	for range n {
		s.packets += atomic.LoadUint64(&p.packets)
		s.bytes += atomic.LoadUint64(&p.bytes)
		s.sampledAt += int64(atomic.LoadUint64(&p.sampledAt))
	}
	return s
}

//go:noinline
func load(c *shm.Counter, n int) (s sums) {
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
