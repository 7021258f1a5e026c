package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// counts is the number of operations per round of each side.
type counts struct{ ours, ref, base int }

// calibrate also warms each side up.
func calibrate(ctx context.Context, s *Sides, d time.Duration) (c counts, err error) {
	for _, side := range []struct {
		f  Side
		to *int
	}{{s.Ours, &c.ours}, {s.Ref, &c.ref}, {s.Base, &c.base}} {
		if side.f == nil {
			continue
		}
		if *side.to, err = fill(ctx, side.f, s.N, d); err != nil {
			return c, err
		}
	}
	return c, nil
}

// fill returns how many operations of f take about d, judged by the wall clock
// so that a side that sleeps is bounded too.
func fill(ctx context.Context, f Side, fixed int, d time.Duration) (int, error) {
	if fixed != 0 {
		_, err := f(ctx, fixed)
		if errors.Is(err, ErrDisturbed) {
			err = nil
		}
		return fixed, err
	}
	const most = 1 << 30
	for n := 1; ; {
		took, err := quickest(ctx, f, n)
		if err != nil {
			return 0, err
		}
		switch {
		case took >= d/2 || n >= most:
			return n, ctx.Err()
		case took < d/64:
			n *= 16
		default:
			n = int(float64(n) * float64(d) / float64(took))
		}
	}
}

// quickest is how long the quicker of two calls takes: threads that have to be
// woken, or a process that took the CPU, are not part of the cost of n operations.
func quickest(ctx context.Context, f Side, n int) (time.Duration, error) {
	least := time.Duration(math.MaxInt64)
	for range 2 {
		start := time.Now()
		if _, err := f(ctx, n); err != nil && !errors.Is(err, ErrDisturbed) {
			return 0, err
		}
		least = min(least, time.Since(start))
	}
	return least, nil
}

// measure runs rounds until there are want undisturbed ones.
func measure(ctx context.Context, s *Sides, env Env, still *stillness, want int, d time.Duration) ([]round, error) {
	n, err := calibrate(ctx, s, d)
	if err != nil {
		return nil, err
	}
	rounds := make([]round, 0, want)
	for try := 0; len(rounds) < want; try++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d rounds are done, %d were disturbed: %w", len(rounds), want, try-len(rounds), err)
		}
		if try == 3*want {
			return nil, fmt.Errorf("%w in %d of %d rounds", ErrDisturbed, try-len(rounds), try)
		}
		var r round
		var err error
		if s.Apart {
			err = still.apart(ctx, env.Peer)
		}
		if err == nil {
			r, err = runRound(ctx, s, still, n, try%2 == 1)
		}
		switch {
		case err == nil:
			rounds = append(rounds, r)
		case errors.Is(err, ErrDisturbed):
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%d of %d rounds are done: %w", len(rounds), want, err)
		default:
			return nil, err
		}
	}
	return rounds, nil
}

// runRound runs every side, in reverse order every other time: the effects of being first or
// last fall on both sides alike.
func runRound(ctx context.Context, s *Sides, still *stillness, n counts, reverse bool) (round, error) {
	run := func(f Side, n int) func() (float64, error) {
		return func() (float64, error) {
			if f == nil {
				return 0, nil
			}
			return still.run(ctx, f, n)
		}
	}
	sides := []func() (float64, error){run(s.Ours, n.ours), run(s.Base, n.base), run(s.Ref, n.ref)}
	if reverse {
		slices.Reverse(sides)
	}
	costs, err := InTurns(max(s.Turns, 1), sides...)
	if err != nil {
		return round{}, err
	}
	if reverse {
		slices.Reverse(costs)
	}
	return round{costs[0] - costs[1], costs[2] - costs[1]}, nil
}

// InTurns runs each side turns times, one after the other, in an order that reverses from one turn to the next. It
// returns the lower quartile of each side's costs: company on the core comes and goes within milliseconds, and makes a
// side dearer, never cheaper.
func InTurns(turns int, sides ...func() (float64, error)) ([]float64, error) {
	all := make([][]float64, len(sides))
	for turn := range turns {
		for i := range sides {
			if turn%2 == 1 {
				i = len(sides) - 1 - i
			}
			ns, err := sides[i]()
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], ns)
		}
	}
	costs := make([]float64, len(sides))
	for i := range all {
		costs[i] = quantile(all[i], 0.25)
	}
	return costs, nil
}
