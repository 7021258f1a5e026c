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
	env, err := newEnv()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(env.Dir)
	defer release(rows, o.Logger)

	report := &Report{Schema: 1, Machine: machine(env), Results: []Result{}}
	r := &runner{Env: env, Options: o}
	var stopped error
	err = Pinned(env.CPU, func() { stopped = r.run(ctx, rows, report) })
	return report, errors.Join(err, stopped)
}

// newEnv chooses the CPUs and makes the directory, which the caller removes.
func newEnv() (Env, error) {
	cpus, err := CPUs()
	if err != nil {
		return Env{}, err
	}

	// The last CPU: interrupts and other programs favour the first.
	env := Env{CPU: cpus[len(cpus)-1], Peer: -1}
	if len(cpus) > 1 {
		env.Peer = cpus[len(cpus)-2]
	}
	env.Dir, err = os.MkdirTemp("", "flowtally-bench-")
	if err != nil {
		return Env{}, fmt.Errorf("making a directory for the bench: %w", err)
	}
	return env, nil
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

// runner measures rows on the thread that calls it, which is pinned to Env.CPU.
type runner struct {
	Env
	Options
	still *stillness // nil: a side runs as it comes, also on a shared core
}

// run measures rows into report, first each once, then again those that miss.
func (r *runner) run(ctx context.Context, rows []Row, report *Report) error {
	if !r.Anywhere {
		var err error
		if r.still, err = newStillness(ctx); err != nil {
			return err
		}
	}

	for _, row := range rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		result := r.row(ctx, row)
		if err := ctx.Err(); err != nil {
			return err // in the middle of the row: its result says nothing
		}
		report.Results = append(report.Results, result)
		r.Each(result, false)
	}

	report.Complete = true
	return r.confirm(ctx, rows, report.Results)
}

// confirm measures rows that miss again, until no row misses or Options.Confirm is used up. results are those of rows,
// in the same order.
func (r *runner) confirm(ctx context.Context, rows []Row, results []Result) error {
	pause := r.Pause
	for range r.Confirm {
		if !slices.ContainsFunc(results, Result.missed) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2

		// Other work that ran all the time when the floor was found may have ended.
		if r.still != nil {
			if err := r.still.findFloor(ctx); err != nil {
				return err
			}
		}
		for i, row := range rows {
			if !results[i].missed() {
				continue
			}
			later := r.row(ctx, row)
			if err := ctx.Err(); err != nil {
				return err
			}
			results[i] = results[i].again(later)
			r.Each(results[i], true)
		}
	}
	return nil
}
