// Command flowtally-bench measures this machine: every figure is a ratio to a floor or to a peer. It is no part of a
// release: `make bench` and `make bench-short` build and run it from the sources. It runs the programs flowtally and
// flowtally-plugin that lie beside it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/charmbracelet/x/term"

	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/flowrows"
)

// Exit codes, as flowtally has them.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const description = `Measures this machine: every figure a ratio to a floor or a peer.

Rows go to standard output, talk to standard error. SIGINT and SIGTERM end the run: the rows that were measured are printed. Exit codes: 0 ok, 1 failed or ended by a signal, 2 wrong usage.`

func main() {
	end, err := flowrows.Preload(programs())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Stdout, os.Stderr, os.Args[1:])
	stop()
	if err := end(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// root is the command line.
type root struct {
	Log logFlags `embed:"" prefix:"log."`
	command
}

// exit is the value with which kong's exit function panics, to come back to run.
type exit int

// run runs the command line args and returns the exit code of the process.
func run(ctx context.Context, stdout, stderr io.Writer, args []string) (code int) {
	// The engine of a row may start this program again, to try an RDMA device or to release what it has attached.
	if code, is := engine.TrialMain(); is {
		return code
	}
	// A row starts this program again as its floor.
	if code, is := bench.FloorMain(everyFloor()); is {
		return code
	}

	defer func() {
		switch e := recover().(type) {
		case nil:
		case exit: // --help
			code = int(e)
		default:
			panic(e)
		}
	}()
	var r root
	parser, err := kong.New(&r,
		kong.Name("flowtally-bench"),
		kong.Description(description),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
	)
	if err != nil {
		return report(stderr, err)
	}
	if _, err := parser.Parse(args); err != nil {
		return report(stderr, &usageError{err})
	}
	return report(stderr, r.command.run(&env{
		ctx:    ctx,
		stdout: stdout,
		stderr: stderr,
		log:    r.Log.logger(stderr),
	}))
}

// report prints err and its next step, and returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "flowtally-bench: %v\n", err)

	if missed := (*missError)(nil); errors.As(err, &missed) {
		fmt.Fprintln(stderr, "  try: again on an otherwise idle machine; --log.level debug shows every attempt")
	}
	if usage := (*usageError)(nil); errors.As(err, &usage) {
		fmt.Fprintln(stderr, "  try: flowtally-bench --help")
		return exitUsage
	}
	return exitFailed
}

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// missError: rows miss their bound, or a bounded row was not measured.
type missError struct{ missed, of int }

func (e *missError) Error() string {
	return fmt.Sprintf("%d of %s miss their bound", e.missed, rowsOf(e.of))
}

// logFlags are the flags --log.level and --log.format.
type logFlags struct {
	Level  slog.Level `help:"Least severe message that is logged: debug, info, warn or error." default:"info" env:"FLOWTALLY_LOG_LEVEL" placeholder:"LEVEL"`
	Format string     `help:"How messages are logged: ${enum}. Auto is text on a terminal, JSON elsewhere." enum:"auto,text,json" default:"auto" env:"FLOWTALLY_LOG_FORMAT"`
}

func (f logFlags) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: f.Level}
	if f.Format == "json" || f.Format == "auto" && !isTerminal(w) {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(term.File)
	return ok && term.IsTerminal(file.Fd())
}
