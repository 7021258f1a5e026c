package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/flowtally/flowtally/cmd/internal/export/exportrows"
	"github.com/flowtally/flowtally/internal/bench"
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
	var report *bench.Report
	if c.List {
		report = bench.List(rows)
	} else if report, err = bench.Run(env.Context, rows, options); err != nil {
		return fmt.Errorf("bench: measuring: %w", err)
	}
	if c.json() {
		err = report.WriteJSON(env.Stdout)
	} else {
		err = report.WriteTable(env.Stdout)
	}
	if err != nil {
		return err
	}
	if !c.Gate || c.List {
		return nil
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
