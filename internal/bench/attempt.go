package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// row measures a row until an attempt is quiet enough, or none can be.
func (r *runner) row(ctx context.Context, row Row) Result {
	if row.Peers != "" && !r.Peers {
		row.Bound = 0 // nobody asked for it, so no verdict either
		return unmeasured(row, "compares with "+row.Peers+": measure it with --peers")
	}
	if row.Prepare != nil {
		if err := row.Prepare(ctx); err != nil {
			return unmeasured(row, err.Error())
		}
	}

	// A collection in the middle of a round would be most of it.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))

	ctx, cancel := context.WithTimeout(ctx, max(r.RowTime, row.Time))
	defer cancel()
	s, err := r.attempts(ctx, row)
	if err == nil {
		return measured(row, s)
	}

	result := unmeasured(row, err.Error())
	result.busy = ctx.Err() != nil || errors.Is(err, errNoise) || errors.Is(err, ErrDisturbed)
	if result.busy {
		result.Reason += advice(row.Name)
	}
	return result
}

// advice ends the reason of a row that a busy machine kept from being measured.
func advice(row string) string {
	return fmt.Sprintf(`; stop other work on this machine (top shows it), or measure the row alone: make bench BENCH_ARGS="--row %s"`, row)
}

// attempts samples the row until a sample is quiet, at most Options.Attempts times. The error says why none was.
func (r *runner) attempts(ctx context.Context, row Row) (summary, error) {
	var noise error // of the attempt before
	for attempt := 1; attempt <= r.Attempts; attempt++ {
		rounds, widest, err := r.sample(ctx, row)
		if err != nil && ctx.Err() == nil {
			return summary{}, err
		}
		if err != nil { // of whichever call was under way at the end of the row's time
			if noise != nil {
				err = noise
			}
			return summary{}, fmt.Errorf("row took too long: %w", err)
		}

		s := summarise(rounds)
		r.Logger.Debug("measured", "row", row.Name, "attempt", attempt, "ours_ns", s.ours, "ref_ns", s.ref,
			"ratio", s.ratio, "spread", s.spread, "low", s.low, "high", s.high, "lost", s.lost)
		if noise = s.noise(row.Bound, widest); noise == nil {
			return s, nil
		}
		noise = fmt.Errorf("%w in the last of %d attempts", noise, attempt)
	}
	return summary{}, noise
}

// sample opens the row several times and takes a share of the rounds each time. widest is the spread up to which they
// are quiet.
func (r *runner) sample(ctx context.Context, row Row) (all []round, widest float64, err error) {
	rounds := r.Rounds
	if row.Rounds != 0 {
		rounds = min(rounds, max(row.Rounds, leastRounds))
	}
	openings := cmp.Or(row.Openings, r.Openings)
	share := (rounds + openings - 1) / openings

	for range openings {
		some, maxSpread, err := r.openOnce(ctx, row, share)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, some...)
		widest = cmp.Or(maxSpread, r.MaxSpread)
	}
	return all, widest, nil
}

// openOnce opens the row, takes rounds and closes it. maxSpread is that of the sides.
func (r *runner) openOnce(ctx context.Context, row Row, rounds int) (some []round, maxSpread float64, err error) {
	sides, err := row.Open(ctx, r.Env)
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

	o := &opening{Sides: sides, peer: r.Peer, roundTime: r.RoundTime}
	if !sides.Paced {
		o.still = r.still
	}
	runtime.GC() // what Open left: none is collected during the rounds
	some, err = o.rounds(ctx, rounds)
	return some, sides.MaxSpread, err
}
