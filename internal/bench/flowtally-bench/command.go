package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/curves"
	"github.com/flowtally/flowtally/internal/bench/keep"
)

// command is what the flags ask for.
type command struct {
	Output string   `short:"o" help:"How data is printed: ${enum}." enum:"table,json" default:"table"`
	Rows   []string `name:"row" short:"r" placeholder:"NAME" help:"Measure these rows only; patterns as of the shell, several allowed."`
	Gate   bool     `help:"Exit with 1 where a row misses its bound or could not be measured."`
	Short  bool     `help:"A few seconds in all; with --gate, fail only on a row that cannot be opened, and on a miss that is beyond the run's own noise and confirmed for up to two minutes."`
	Peers  bool     `help:"Also measure the rows that compare with nftables, DPDK's rte_acl and govpp, which make bench installs."`
	Plot   bool     `help:"Measure the points of the picture of docs/performance.md instead of the rows: the cost of a packet over rules and masks."`
	Keep   string   `type:"existingdir" placeholder:"DIR" help:"Keep what is measured in this directory, in a JSON file of the processor's family. A row that is not measured keeps its older figure."`
	Commit string   `placeholder:"NAME" help:"The commit of the sources, which is kept with each figure."`
	List   bool     `help:"Print the rows and their bounds, and measure nothing."`
}

// env is the surroundings of a run.
type env struct {
	ctx    context.Context // ends at a signal
	stdout io.Writer       // data
	stderr io.Writer       // talk
	log    *slog.Logger
}

func (c *command) run(e *env) error {
	if c.Keep != "" && !c.List {
		if err := keep.Check(c.Keep); err != nil { // before minutes of measuring
			return err
		}
	}
	if c.Plot {
		return c.measurePoints(e)
	}

	rows, err := bench.Select(everyRow(), c.Rows)
	if err != nil {
		return &usageError{err}
	}
	if c.Short && len(c.Rows) == 0 {
		rows = bench.Brief(rows)
	}
	if c.List {
		return c.print(e, bench.List(rows))
	}

	report, err := c.measure(e, rows, c.options(e), func(report *bench.Report, run keep.Run) (string, error) {
		return keep.AddRows(c.Keep, everyRow(), report, run)
	})
	if err != nil || !c.Gate {
		return err
	}
	missed := report.Missed(c.Short)
	for _, line := range missed {
		fmt.Fprintln(e.stderr, line)
	}
	if len(missed) > 0 {
		return &missError{len(missed), len(rows)}
	}
	return nil
}

// options are those of a run that measures rows.
func (c *command) options(e *env) bench.Options {
	var o bench.Options
	if c.Short {
		o = bench.Short()
	}
	if !c.Gate {
		o.Confirm = 0 // there is no verdict to confirm
	}
	o.Peers = c.Peers
	o.Logger = e.log
	return o
}

// measure prints each row as it is measured, or all of them at the end as JSON, and has add keep them. A signal ends the
// run and loses no row: those that were measured are printed and kept, and measure fails.
func (c *command) measure(e *env, rows []bench.Row, options bench.Options, add func(*bench.Report, keep.Run) (string, error)) (*bench.Report, error) {
	fmt.Fprintf(e.stderr, "flowtally-bench: measuring %s: about %s on an idle machine; a busy one takes several times as long\n",
		rowsOf(len(rows)), bench.Estimate(rows, options))

	var table *bench.Table
	if c.Output == "table" {
		table = bench.NewTable(e.stdout, rows)
		options.Each = table.Add
	}
	report, err := bench.Run(e.ctx, rows, options)
	switch {
	case table != nil:
		err = errors.Join(err, table.Err())
	case report != nil:
		err = errors.Join(err, report.WriteJSON(e.stdout))
	}
	if c.Keep != "" && report != nil {
		path, keepErr := add(report, keep.Run{Time: time.Now(), Commit: c.Commit})
		err = errors.Join(err, keepErr)
		if keepErr == nil {
			fmt.Fprintf(e.stderr, "flowtally-bench: kept the figures in %s\n", path)
		}
	}

	if report != nil && e.ctx.Err() != nil {
		return nil, fmt.Errorf("ended by a signal after %d of %s", len(report.Results), rowsOf(len(rows)))
	}
	if err != nil {
		return nil, fmt.Errorf("measuring: %w", err)
	}
	return report, nil
}

func (c *command) print(e *env, report *bench.Report) error {
	if c.Output == "json" {
		return report.WriteJSON(e.stdout)
	}
	return report.WriteTable(e.stdout)
}

// measurePoints measures the points of the picture, and prints them as rows.
func (c *command) measurePoints(e *env) error {
	if c.Gate || c.List || len(c.Rows) > 0 {
		return &usageError{errors.New("--plot measures points of its own: without --gate, --list and --row")}
	}

	options := bench.Short()
	options.Confirm = 0
	options.Attempts = 2
	options.MaxSpread = 10 // a point is drawn, however wide
	options.RowTime = time.Minute
	options.Peers = c.Peers
	options.Logger = e.log
	points := curves.Rows()
	_, err := c.measure(e, points, options, func(report *bench.Report, run keep.Run) (string, error) {
		return keep.AddPoints(c.Keep, points, report, run)
	})
	return err
}

// rowsOf is n rows, in words.
func rowsOf(n int) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}
