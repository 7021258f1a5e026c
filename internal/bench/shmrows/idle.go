package shmrows

import (
	"context"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

// Waking may cost this share of a core while no reader sleeps.
const idleShare = 0.01

// openIdle: the CPU time of the process for poll cycles 10 ms apart, of a writer that wakes
// and of one that has no page to wake on and burns 1 % of a core instead.
func openIdle(context.Context, bench.Env) (*bench.Sides, error) {
	return idleSides(5, func(w *shm.Writer, burn bool) bench.Side {
		cycle := idleCycle(w)
		return bench.Timed(bench.ProcessCPU, func(n int) {
			paced(func() {
				cycle()
				if burn {
					spin(shm.Now() + int64(idleShare*float64(cyclePeriod)))
				}
			}, n)
		})
	})
}

const (
	busyPeriod = 10 * time.Microsecond // between the cycles of a busy poller here
	preempted  = 10 * time.Microsecond // no end of a cycle takes so long without a sleeper
)

// openIdleBusy: cycles without a pause. The cost of their ends, and of other threads of the
// process meanwhile, against the same of a writer without a page and 1 % of the time that
// passes.
func openIdleBusy(context.Context, bench.Env) (*bench.Sides, error) {
	return idleSides(8000, func(w *shm.Writer, burn bool) bench.Side {
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
				if took := shm.Now() - now; took < int64(preempted) {
					ends += took
				}
				spin(start + int64(i+1)*int64(busyPeriod))
			}
			passed := shm.Now() - start

			after, err := bench.OthersCPU()
			if err != nil {
				return 0, err
			}
			cost := float64(ends + after - before)
			if burn {
				cost += idleShare * float64(passed)
			}
			return cost / float64(n), nil
		}
	})
}

// idleSides are cycles of a writer that wakes, without a sleeper, and of a writer that does not wake.
func idleSides(n int, side func(w *shm.Writer, burn bool) bench.Side) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		waking, err := newMirrorFor(open, shm.BlockLen, 0, 0)
		if err != nil {
			return nil, err
		}
		alone, err := newMirrorFor(open, shm.BlockLen, 0, -1)
		if err != nil {
			return nil, err
		}
		return &bench.Sides{
			Ours:      side(waking.w, false),
			Ref:       side(alone.w, true),
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
