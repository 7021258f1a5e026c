package bench

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// advice ends the reason of a row that a busy machine kept from being measured.
func advice(row string) string {
	return fmt.Sprintf(`; stop other work on this machine (top shows it), or measure the row alone: make bench BENCH_ARGS="--row %s"`, row)
}

// runRow measures until an attempt is quiet enough, or none can be.
func runRow(ctx context.Context, row Row, env Env, still *stillness, o Options) Result {
	if row.Peers != "" && !o.Peers {
		row.Bound = 0 // not asked for, so no verdict either
		return unmeasured(row, "compares with "+row.Peers+": measure it with --peers")
	}
	if row.Prepare != nil {
		if err := row.Prepare(ctx); err != nil {
			return unmeasured(row, err.Error())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, max(o.RowTime, row.Time))
	defer cancel()
	if row.Rounds != 0 {
		o.Rounds = min(o.Rounds, max(row.Rounds, 7))
	}
	o.Openings = cmp.Or(row.Openings, o.Openings)
	// A collection in the middle of a round would be most of it.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	reason := ""
	for attempt := 1; attempt <= o.Attempts; attempt++ {
		rounds, widest, err := sample(ctx, row, env, still, o)
		if err != nil {
			if reason == "" || ctx.Err() == nil {
				reason = err.Error()
			}
			if ctx.Err() != nil { // whichever call the end of the time has ended
				reason = "row took too long: " + reason
			}
			break
		}
		s := summarise(rounds)
		o.Logger.Debug("measured", "row", row.Name, "attempt", attempt, "ours_ns", s.ours, "ref_ns", s.ref,
			"ratio", s.ratio, "spread", s.spread, "low", s.low, "high", s.high, "lost", s.lost)
		switch {
		case s.lost*20 > s.rounds:
			reason = fmt.Sprintf("noise: in %d of %d rounds a side cost no more than the base", s.lost, s.rounds)
		case s.spread > widest && s.open(row.Bound):
			reason = fmt.Sprintf("noise: spread %.2f is above %.2f", s.spread, widest)
		default:
			return measured(row, s)
		}
		reason += fmt.Sprintf(" in the last of %d attempts", attempt)
	}
	if ctx.Err() != nil || strings.HasPrefix(reason, "noise: ") || strings.Contains(reason, ErrDisturbed.Error()) {
		reason += advice(row.Name)
	}
	return unmeasured(row, reason)
}

// sample opens the row several times and takes a share of the rounds each time;
// widest is the spread up to which they are quiet.
func sample(ctx context.Context, row Row, env Env, still *stillness, o Options) (rounds []round, widest float64, err error) {
	share := (o.Rounds + o.Openings - 1) / o.Openings
	for range o.Openings {
		sides, err := row.Open(ctx, env)
		if err != nil {
			return nil, 0, err
		}
		widest = sides.MaxSpread
		runtime.GC()
		quiet := still
		if sides.Paced {
			quiet = nil
		}
		some, err := measure(ctx, sides, env, quiet, share, o.RoundTime)
		if sides.Close != nil {
			if err := sides.Close(); err != nil {
				o.Logger.Warn("row left something behind", "row", row.Name, "err", err)
			}
		}
		if err != nil {
			return nil, 0, err
		}
		rounds = append(rounds, some...)
	}
	if widest == 0 {
		widest = o.MaxSpread
	}
	return rounds, widest, nil
}
