package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// leastRounds is the fewest rounds of an attempt. Below 6 there is no interval of 95 % (medianRank), and an odd number
// has a middle.
const leastRounds = 7

// opening is a row that is open, on its way through the rounds.
type opening struct {
	*Sides
	tally     *tally             // of the row
	peer      int                // the CPU of the second thread, -1: none
	still     *stillness         // nil: the sides run as they come
	roundTime time.Duration      // of one side in one round, about
	enough    func([]round) bool // says that a late row has rounds enough
	n         counts
}

// counts is the number of operations of each side in a round.
type counts struct{ ours, ref, base int }

// rounds takes rounds until want of them were undisturbed. It fails when three times as many did not suffice. With an
// error it returns the rounds that were done before.
func (o *opening) rounds(ctx context.Context, want int) ([]round, error) {
	if err := o.calibrate(ctx); err != nil {
		return nil, err
	}

	done := make([]round, 0, want)
	for try := 0; len(done) < want; try++ {
		disturbed := try - len(done)
		if err := ctx.Err(); err != nil {
			return done, fmt.Errorf("%d of %d rounds are done, %d were disturbed: %w", len(done), want, disturbed, err)
		}
		if o.enough(done) {
			return done, fmt.Errorf("%w: %d of %d rounds are done, %d were disturbed", errLate, len(done), want, disturbed)
		}
		if try == 3*want {
			return done, fmt.Errorf("%w in %d of %d rounds", ErrDisturbed, disturbed, try)
		}

		o.tally.rounds++
		r, err := o.round(ctx, try%2 == 1)
		switch {
		case err == nil:
			done = append(done, r)
		case errors.Is(err, errCompany):
			o.tally.disturbed++
			o.tally.crowded = append(o.tally.crowded, r)
		case errors.Is(err, ErrDisturbed):
			o.tally.disturbed++
		case ctx.Err() != nil:
			return done, fmt.Errorf("%d of %d rounds are done: %w", len(done), want, err)
		default:
			return done, err
		}
	}
	return done, nil
}

// round runs every side, in reverse order every other time: what being first or last costs falls on both alike. After a
// side that never had the core to itself, the others run as they come, and the round has errCompany and its costs.
func (o *opening) round(ctx context.Context, reverse bool) (round, error) {
	if o.Apart {
		if err := o.still.apart(ctx, o.peer); err != nil {
			return round{}, err
		}
	}

	crowded := false
	side := func(f Side, n int) func() (float64, error) {
		return func() (ns float64, err error) {
			switch {
			case f == nil: // a side that the row lacks costs nothing
				return 0, nil
			case crowded:
				return f(ctx, n)
			}
			if ns, err = o.still.run(ctx, f, n); errors.Is(err, errCompany) && ctx.Err() == nil {
				crowded = true
				return f(ctx, n)
			}
			return ns, err
		}
	}
	sides := []func() (float64, error){
		side(o.Ours, o.n.ours),
		side(o.Base, o.n.base),
		side(o.Ref, o.n.ref),
	}
	if reverse {
		slices.Reverse(sides)
	}
	costs, err := InTurns(max(o.Turns, 1), sides...)
	if err != nil {
		return round{}, err
	}
	if reverse {
		slices.Reverse(costs)
	}
	ours, base, ref := costs[0], costs[1], costs[2]
	if crowded {
		err = errCompany
	}
	return above(base, ours, ref, o.Resolution), err
}

// above returns the costs of both sides above the base. resolution is that of [Sides].
func above(base, ours, ref, resolution float64) round {
	if least := resolution * base; least > 0 {
		return round{ours: max(ours-base, least), ref: max(ref-base, least)}
	}
	return round{ours: ours - base, ref: ref - base}
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

// calibrate chooses the operations of each side in a round. It also warms each side up.
func (o *opening) calibrate(ctx context.Context) error {
	for _, side := range []struct {
		f Side
		n *int
	}{
		{o.Ours, &o.n.ours},
		{o.Ref, &o.n.ref},
		{o.Base, &o.n.base},
	} {
		if side.f == nil {
			continue
		}
		n, err := fill(ctx, side.f, o.N, o.roundTime)
		if err != nil {
			return err
		}
		*side.n = n
	}
	return nil
}

// fill returns how many operations of f take about d, or fixed unless that is 0. The wall clock judges, so that a side
// that sleeps is bounded too.
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

// quickest is how long the quicker of two calls takes. The slower one may have waited for a thread to wake, or for a
// process that took the CPU: neither is part of the cost of n operations.
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
