package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane"
)

// Env is what a command gets beside its flags. It does not change while the command runs.
type Env struct {
	// Context ends at SIGINT and SIGTERM, and except for run --config at SIGHUP. A command that runs until then cleans up
	// and returns nil.
	Context context.Context
	Stdin   io.Reader
	Stdout  io.Writer // data
	Stderr  io.Writer // messages
	Logger  *slog.Logger
	// TTY says whether Stdout is a terminal that understands control sequences.
	TTY bool

	named string            // the instance named by --instance or the environment; empty: the default one
	model *kong.Application // for completion
	line  *commandLine      // for next steps
}

// completed completes the fixes of conditions in place, so that their commands act on the instance chosen for this one.
func (e *Env) completed(conditions []dataplane.Condition) []dataplane.Condition {
	if e.line == nil {
		return conditions
	}
	for i := range conditions {
		conditions[i].Fix = e.line.complete(conditions[i].Fix)
	}
	return conditions
}

// logFlags are the flags --log.level and --log.format.
type logFlags struct {
	Level  slog.Level `help:"Least severe message that is logged: debug, info, warn or error." default:"info" env:"FLOWTALLY_LOG_LEVEL" placeholder:"LEVEL"`
	Format string     `help:"How messages are logged: ${enum}. Auto is text on a terminal, JSON elsewhere." enum:"auto,text,json" default:"auto" env:"FLOWTALLY_LOG_FORMAT"`
}

func (f logFlags) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: f.Level}
	if f.Format == "json" || f.Format == "auto" && !format.IsTerminal(w) {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
