package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// row measures a row until an attempt is quiet enough, or none can be.
func (r *runner) row(ctx context.Context, row Row) Result {
	if row.Peers != "" && !r.Peers {
		row.Bound = 0 // nobody asked for it, so no verdict either
		return unmeasured(row, "compares with "+row.Peers+": measure it with --peers")
	}

	var t tally
	if row.Prepare != nil {
		err := r.start(ctx, row, &t, func() error { return row.Prepare(ctx) })
		if err != nil {
			return r.disturbed(row, summary{}, t, err)
		}
	}

	// A collection in the middle of a round would be most of it.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))

	ctx, cancel := context.WithTimeout(ctx, r.timeOf(row))
	defer cancel()
	s, err := r.attempts(ctx, row, &t)
	if err != nil {
		return r.disturbed(row, s, t, err)
	}
	return measured(row, s, t)
}

// timeOf is how long the attempts at a row may take.
func (r *runner) timeOf(row Row) time.Duration { return max(r.RowTime, row.Time) }

// disturbed returns the result of a row without a quiet attempt. err says why; best has the narrowest interval. Where it
// has none, rounds beside other work on the core are better than no figure. They can show that a bound holds, and no miss.
func (r *runner) disturbed(row Row, best summary, t tally, err error) Result {
	busy := errors.Is(err, errLate) || errors.Is(err, errNoise) || errors.Is(err, ErrDisturbed)
	if !busy {
		return unmeasured(row, err.Error())
	}
	if crowded := summarise(t.crowded); best.rounds < leastRounds && crowded.rounds > best.rounds {
		err = fmt.Errorf("%w; the figures are of %d rounds on a core that something else used too", err, crowded.rounds)
		result := noisy(row, crowded, t, err.Error()+advice(row.Name))
		if result.missed() {
			result.Pass = nil // company may slow one side more than the other
		}
		return result
	}
	return noisy(row, best, t, err.Error()+advice(row.Name))
}

// tally counts what disturbed a row, over all of its attempts.
type tally struct {
	rounds    int // that began
	disturbed int // of them: their conditions did not hold
	starts    int // that failed under the load of the host

	// crowded has those of the disturbed rounds that have figures: a side never had the core to itself.
	crowded []round
}

// start calls f, which starts what the row is measured on. It calls f again for as long as the row may take where the
// load of the host kept it from starting.
func (r *runner) start(ctx context.Context, row Row, t *tally, f func() error) error {
	end := time.Now().Add(r.timeOf(row))
	for {
		err := f()
		if !errors.Is(err, ErrDisturbed) {
			return err
		}
		t.starts++
		r.Logger.Debug("start failed", "row", row.Name, "err", err)

		if time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(r.Pause):
		}
	}
}

// advice ends the reason of a row that a busy machine disturbed.
func advice(row string) string {
	return fmt.Sprintf(`; stop other work on this machine (top shows it), or measure the row alone: make bench BENCH_ARGS="--row %s"`, row)
}

// attempts samples the row until a sample is quiet, at most Options.Attempts times. Where none was, the error says why,
// and best is the sample with the narrowest interval. A sample that ended early is one of them.
func (r *runner) attempts(ctx context.Context, row Row, t *tally) (best summary, err error) {
	var noise error // of the attempt before
	half := time.Now().Add(r.timeOf(row) / 2)
	for attempt := 1; attempt <= r.Attempts; attempt++ {
		rounds, widest, err := r.sample(ctx, row, t, half)
		s := summarise(rounds)
		best = better(best, s)
		if errors.Is(err, errLate) || err != nil && ctx.Err() == nil {
			return best, err
		}
		if err != nil { // of whichever call was under way at the end of the row's time
			if noise != nil {
				err = noise
			}
			return best, fmt.Errorf("%w: %w", errLate, err)
		}

		r.Logger.Debug("measured", "row", row.Name, "attempt", attempt, "ours_ns", s.ours, "ref_ns", s.ref,
			"ratio", s.ratio, "spread", s.spread, "low", s.low, "high", s.high, "lost", s.lost)
		if noise = s.noise(row.Bound, widest); noise == nil {
			return s, nil
		}
		noise = fmt.Errorf("%w in the last of %d attempts", noise, attempt)
	}
	return best, noise
}

// sample opens the row several times and takes a share of the rounds each time. widest is the spread up to which they
// are quiet. With an error it returns the rounds that were done before.
//
// On a busy machine a row takes all of its time. From half on, the rounds so far are enough if they have left the bound.
func (r *runner) sample(ctx context.Context, row Row, t *tally, half time.Time) (all []round, widest float64, err error) {
	rounds := r.Rounds
	if row.Rounds != 0 {
		rounds = min(rounds, max(row.Rounds, leastRounds))
	}
	openings := cmp.Or(row.Openings, r.Openings)
	share := (rounds + openings - 1) / openings

	enough := func(some []round) bool {
		return time.Now().After(half) && len(some) >= leastRounds && !summarise(some).open(row.Bound)
	}
	for range openings {
		some, maxSpread, err := r.openOnce(ctx, row, share, t, enough)
		all = append(all, some...)
		if err != nil {
			return all, 0, err
		}
		widest = cmp.Or(maxSpread, r.MaxSpread)
	}
	return all, widest, nil
}

// openOnce opens the row, takes rounds and closes it. maxSpread is that of the sides. With an error it returns the
// rounds that were done before.
func (r *runner) openOnce(ctx context.Context, row Row, rounds int, t *tally, enough func([]round) bool) (some []round, maxSpread float64, err error) {
	var sides *Sides
	err = r.start(ctx, row, t, func() (err error) {
		sides, err = row.Open(ctx, r.Env)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	if sides.Close != nil {
		defer func() {
			if err := sides.Close(); err != nil {
				r.Logger.Warn("row left something behind", "row", row.Name, "err", err)
			}
		}()
	}

	o := &opening{
		Sides:     sides,
		tally:     t,
		peer:      r.Peer,
		roundTime: r.RoundTime,
		enough:    enough,
	}
	if !sides.Paced {
		o.still = r.still
	}
	runtime.GC() // what Open left: none is collected during the rounds
	some, err = o.rounds(ctx, rounds)
	return some, sides.MaxSpread, err
}
