package pollrows

import (
	"context"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/bench"
)

// idleFor is the wall time of a round.
const idleFor = time.Second

// openIdle runs an engine with so many counters and no packets. A round of ours sleeps, and takes the CPU time that the
// process had meanwhile, in a second. The other side is a hundredth of a second.
func openIdle(counters int) func(context.Context, bench.Env) (*bench.Sides, error) {
	return func(ctx context.Context, _ bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			r, _, err := startEngine(ctx, open, counters, dataplane.PollConfig{}, true)
			if err != nil {
				return nil, err
			}
			for r.Status().PollPeriod <= coldPeriod {
				if err := sleep(ctx, coldPeriod); err != nil {
					return nil, fmt.Errorf("waiting for the idle period: %w", err)
				}
			}
			return &bench.Sides{
				Ours: func(ctx context.Context, _ int) (float64, error) {
					begun, start := time.Now(), int64(0)
					if start, err = bench.ProcessCPU(); err != nil {
						return 0, err
					}
					if err := sleep(ctx, idleFor); err != nil {
						return 0, err
					}
					end, err := bench.ProcessCPU()
					return float64(end-start) / time.Since(begun).Seconds(), err
				},
				Ref: func(context.Context, int) (float64, error) { return float64(time.Second / 100), nil },
				N:   1, Paced: true, MaxSpread: 1,
			}, nil
		})
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
