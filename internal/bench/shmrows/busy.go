package shmrows

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/twocpu"
	"github.com/flowtally/flowtally/shm"
)

// The rate of the busy writer, and how far off it may be.
const (
	publishPeriod = time.Microsecond
	rateTolerance = 0.1
)

// openBusy: HandleCounter.Load while the writer publishes that counter 1 M times a
// second on the other CPU, against the same while the other CPU only looks at
// the clock. A round in which the writer did not keep its rate (it was not on
// its CPU all the time) is discarded.
func openBusy(_ context.Context, env bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		p, err := twocpu.NewPeer(open, env)
		if err != nil {
			return nil, err
		}
		m, err := newMirror(open, 0, 1)
		if err != nil {
			return nil, err
		}
		h := m.handles[0]
		c, err := m.r.Counter(h)
		if err != nil {
			return nil, err
		}
		sink := new(sums)
		read := bench.Timed(bench.ThreadCPU, func(n int) { *sink = load(&c, n) })
		publish := func(n uint64) { m.w.PublishRecord(h.Index, value(n)) }
		return &bench.Sides{
			Ours: beside(p, m.w, publish, read),
			Ref:  beside(p, m.w, func(uint64) {}, read),
		}, nil
	})
}

// beside is side with a writer on the other CPU that calls publish once a period.
func beside(p *twocpu.Peer, w *shm.Writer, publish func(n uint64), side bench.Side) bench.Side {
	return func(ctx context.Context, n int) (float64, error) {
		var stop atomic.Bool
		rate := make(chan float64, 1)
		if err := p.Start(func() { rate <- publishUntil(&stop, w, publish) }); err != nil {
			return 0, err
		}
		ns, err := side(ctx, n)
		stop.Store(true)
		if got := <-rate; got < 1-rateTolerance || got > 1+rateTolerance {
			return 0, fmt.Errorf("writer at %.2f of its rate: %w", got, bench.ErrDisturbed)
		}
		return ns, err
	}
}

// publishUntil calls publish once a period inside one poll cycle, and returns
// how much of that rate it kept.
func publishUntil(stop *atomic.Bool, w *shm.Writer, publish func(n uint64)) float64 {
	w.BeginCycle()
	defer func() { w.EndCycle(shm.Now()) }()
	start := shm.Now()
	next := start
	done := uint64(0)
	for !stop.Load() {
		now := shm.Now()
		if now < next {
			continue
		}
		// Periods that passed while the thread was off its CPU are not made up for.
		next = max(next+int64(publishPeriod), now)
		done++
		publish(done)
	}
	return float64(done) * float64(publishPeriod) / float64(shm.Now()-start)
}
