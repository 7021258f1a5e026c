package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"
)

// Run measures rows in order and returns the report. It fails only when nothing can be measured here, or when ctx ends:
// the report then has the rows that were measured before. A row that cannot be measured has no figures in the report,
// and the reason. Not to be called twice at the same time.
func Run(ctx context.Context, rows []Row, o Options) (*Report, error) {
	o = o.withDefaults()
	cpus, err := CPUs()
	if err != nil {
		return nil, err
	}
	// The last CPU: interrupts and other programs favour the first.
	env := Env{CPU: cpus[len(cpus)-1], Peer: -1}
	if len(cpus) > 1 {
		env.Peer = cpus[len(cpus)-2]
	}
	env.Dir, err = os.MkdirTemp("", "flowtally-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the bench: %w", err)
	}
	defer os.RemoveAll(env.Dir)

	defer release(rows, o.Logger)

	report := &Report{Schema: 1, Machine: machine(env), Results: []Result{}}
	var stopped error
	err = Pinned(env.CPU, func() {
		var still *stillness
		if !o.Anywhere {
			if still, stopped = newStillness(ctx); stopped != nil {
				return
			}
		}
		for _, row := range rows {
			if stopped = ctx.Err(); stopped != nil {
				return
			}
			r := runRow(ctx, row, env, still, o)
			if stopped = ctx.Err(); stopped != nil {
				return // in the middle of the row
			}
			report.Results = append(report.Results, r)
			o.Each(r, false)
		}
		report.Complete = true
		stopped = confirm(ctx, rows, report.Results, env, still, o)
	})
	return report, errors.Join(err, stopped)
}

// release ends the objects that rows have prepared.
func release(rows []Row, log *slog.Logger) {
	for _, row := range rows {
		if row.Release == nil {
			continue
		}
		if err := row.Release(); err != nil {
			log.Warn("row left something behind", "row", row.Name, "err", err)
		}
	}
}

// confirm measures rows that miss again, until no row misses or o.Confirm is used up.
func confirm(ctx context.Context, rows []Row, results []Result, env Env, still *stillness, o Options) error {
	pause := o.Pause
	for range o.Confirm {
		if !slices.ContainsFunc(results, Result.missed) {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
		if still != nil {
			if err := still.findFloor(ctx); err != nil {
				return err
			}
		}
		for i, row := range rows {
			if results[i].missed() {
				r := runRow(ctx, row, env, still, o)
				if err := ctx.Err(); err != nil {
					return err
				}
				results[i] = results[i].again(r)
				o.Each(results[i], true)
			}
		}
	}
	return nil
}
