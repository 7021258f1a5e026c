package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/export/exportrows"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/curves"
	"github.com/flowtally/flowtally/internal/bench/flowrows"
	"github.com/flowtally/flowtally/internal/bench/pollrows"
	"github.com/flowtally/flowtally/internal/bench/shmrows"
	"github.com/flowtally/flowtally/internal/bench/toprows"
	"github.com/flowtally/flowtally/internal/bench/vethrows"
	"github.com/flowtally/flowtally/internal/bench/xdprows"
)

// benchCmd measures this machine: every figure a ratio to a floor or a peer.
type benchCmd struct {
	outputFlag
	Rows  []string `name:"row" short:"r" placeholder:"NAME" help:"Measure these rows only; patterns as of the shell, several allowed."`
	Gate  bool     `help:"Exit with 1 where a row misses its bound or could not be measured."`
	Short bool     `help:"A few seconds in all; with --gate, fail only on a miss that is beyond the run's own noise, and confirmed for up to two minutes."`
	Peers bool     `help:"Also measure the rows that compare with nftables and DPDK's rte_acl, which make bench installs."`
	Plot  string   `type:"path" placeholder:"FILE" help:"Measure the cost of a packet over rules and masks instead of the rows, and draw it to this file (SVG)."`
	List  bool     `help:"Print the rows and their bounds, and measure nothing."`
}

// benchRows is every row, in the order in which it is printed.
func benchRows() []bench.Row {
	bin := "" // directory of this program; a row that needs a program from it reports when that is missing
	if self, err := os.Executable(); err == nil {
		bin = filepath.Dir(self)
	}
	return slices.Concat(shmrows.Rows(), xdprows.Rows(), vethrows.Rows(), pollrows.Rows(), flowrows.Rows(bin), toprows.Rows(bin), exportrows.Rows())
}

func (c *benchCmd) Run(env *Env) error {
	if c.Plot != "" {
		return c.draw(env)
	}
	rows, err := bench.Select(benchRows(), c.Rows)
	if err != nil {
		return &usageError{err}
	}
	var options bench.Options
	if c.Short {
		options = bench.Short()
		if len(c.Rows) == 0 {
			rows = bench.Brief(rows)
		}
	}
	options.Peers = c.Peers
	if !c.Gate {
		options.Confirm = 0 // there is no verdict to confirm
	}
	options.Logger = env.Logger
	if c.List {
		return c.print(env, bench.List(rows))
	}
	report, err := c.measure(env, rows, options)
	if err != nil || !c.Gate {
		return err
	}
	missed := report.Missed(c.Short)
	for _, line := range missed {
		fmt.Fprintln(env.Stderr, line)
	}
	if len(missed) > 0 {
		return withHint(fmt.Errorf("bench: %d of %d rows miss their bound", len(missed), len(rows)),
			"again on an otherwise idle machine; --log.level debug shows every attempt")
	}
	return nil
}

func (c *benchCmd) print(env *Env, report *bench.Report) error {
	if c.json() {
		return report.WriteJSON(env.Stdout)
	}
	return report.WriteTable(env.Stdout)
}

// measure prints each row as it is measured, or as JSON those that were measured: a signal ends the run, and loses no row.
func (c *benchCmd) measure(env *Env, rows []bench.Row, options bench.Options) (*bench.Report, error) {
	fmt.Fprintf(env.Stderr, "flowtally: measuring %s: about %s on an idle machine; a busy one takes several times as long\n",
		format.Plural(uint64(len(rows)), "row", "rows"), bench.Estimate(rows, options))
	var table *bench.Table
	if !c.json() {
		table = bench.NewTable(env.Stdout, rows)
		options.Each = table.Add
	}
	report, err := bench.Run(env.Context, rows, options)
	if report != nil && table == nil {
		err = errors.Join(err, report.WriteJSON(env.Stdout))
	}
	if table != nil {
		err = errors.Join(err, table.Err())
	}
	if report != nil && env.Context.Err() != nil {
		return nil, fmt.Errorf("bench: ended by a signal after %d of %s", len(report.Results), format.Plural(uint64(len(rows)), "row", "rows"))
	}
	if err != nil {
		return nil, fmt.Errorf("bench: measuring: %w", err)
	}
	return report, nil
}

// draw writes the plot, and prints the rows that it was made of.
func (c *benchCmd) draw(env *Env) error {
	if c.Gate || c.List || len(c.Rows) > 0 {
		return &usageError{errors.New("--plot measures points of its own: without --gate, --list and --row")}
	}
	// Opened before minutes of measuring, so that a path that cannot be written fails at once.
	file, err := os.OpenFile(c.Plot, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("bench: opening the plot: %w", err)
	}
	defer file.Close()
	options := bench.Short()
	options.Confirm, options.Attempts, options.RowTime = 0, 2, time.Minute
	options.Peers, options.Logger = c.Peers, env.Logger
	var image bytes.Buffer
	report, err := curves.Draw(env.Context, &image, options)
	if err != nil {
		return fmt.Errorf("bench: measuring the plot: %w", err)
	}
	_, err = file.Write(image.Bytes())
	if err = errors.Join(err, file.Truncate(int64(image.Len())), file.Close()); err != nil {
		return fmt.Errorf("bench: writing the plot: %w", err)
	}
	return c.print(env, report)
}
