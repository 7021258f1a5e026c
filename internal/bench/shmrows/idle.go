package shmrows

import (
	"context"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

// openIdle: the CPU time of the process for poll cycles 10 ms apart, of a writer that wakes
// and of one that has no page, after whose cycles the bench makes a bare futex wake.
func openIdle(context.Context, bench.Env) (*bench.Sides, error) {
	return idleSides(5, func(w *shm.Writer, wake func(uint64)) bench.Side {
		cycle := idleCycle(w)
		return bench.Timed(bench.ProcessCPU, func(n int) {
			paced(func() {
				cycle()
				if wake != nil {
					wake(1)
				}
			}, n)
		})
	})
}

const (
	busyPeriod = 10 * time.Microsecond // between the cycles of a busy poller here
	busyWakes  = 10                    // one cycle in so many wakes: a writer wakes once in 100 µs
	preempted  = 10 * time.Microsecond // no end of a cycle takes so long without a sleeper
)

// openIdleBusy: cycles without a pause. The cost of their ends, and of other threads of the
// process meanwhile, against the same of a writer without a page and as many bare futex wakes.
func openIdleBusy(context.Context, bench.Env) (*bench.Sides, error) {
	return idleSides(8000, func(w *shm.Writer, wake func(uint64)) bench.Side {
		return func(_ context.Context, n int) (float64, error) {
			before, err := bench.OthersCPU()
			if err != nil {
				return 0, err
			}

			ends := int64(0) // what the ends of the cycles took
			start := shm.Now()
			for i := range n {
				w.BeginCycle()
				now := shm.Now()
				w.EndCycle(now)
				if wake != nil && i%busyWakes == 0 {
					wake(1)
				}
				if took := shm.Now() - now; took < int64(preempted) {
					ends += took
				}
				spin(start + int64(i+1)*int64(busyPeriod))
			}

			after, err := bench.OthersCPU()
			return float64(ends+after-before) / float64(n), err
		}
	})
}

// idleSides are cycles of a writer that wakes, without a sleeper, and of a writer without a page. For the second, side
// gets a function that makes a bare futex wake, on a word on which nobody sleeps either.
func idleSides(n int, side func(w *shm.Writer, wake func(uint64)) bench.Side) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		waking, err := newMirrorFor(open, shm.BlockLen, 0, 0)
		if err != nil {
			return nil, err
		}
		alone, err := newMirrorFor(open, shm.BlockLen, 0, -1)
		if err != nil {
			return nil, err
		}
		word, err := newSharedWord(open)
		if err != nil {
			return nil, err
		}
		return &bench.Sides{
			Ours:      side(waking.w, nil),
			Ref:       side(alone.w, word.wake),
			N:         n,
			MaxSpread: 0.25,
		}, nil
	})
}

func idleCycle(w *shm.Writer) func() {
	values := block(2)
	return func() {
		w.BeginCycle()
		w.PublishBlock(0, &values)
		w.EndCycle(shm.Now())
	}
}

// spin is busy until that time.
func spin(until int64) {
	for shm.Now() < until {
	}
}
