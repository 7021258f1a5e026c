package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/manual"
	"github.com/flowtally/flowtally/cmd/internal/usage"
	"github.com/flowtally/flowtally/dataplane/engine"
)

// root is the command line.
type root struct {
	Log logFlags    `embed:"" prefix:"log."`
	V   versionFlag `name:"version" help:"Print the versions, as the command version does."`

	Demo       demoCmd       `cmd:"" help:"Send real traffic over a veth pair and compare sent with counted."`
	Run        runCmd        `cmd:"" help:"Count flows until a signal."`
	Top        topCmd        `cmd:"" help:"Show rates and totals, live."`
	Get        getCmd        `cmd:"" help:"Print counters once."`
	Watch      watchCmd      `cmd:"" help:"Print changes while they happen."`
	Wait       waitCmd       `cmd:"" help:"Sleep until a counter has counted enough."`
	Apply      applyCmd      `cmd:"" help:"Make a running instance its configuration file: all changes or none."`
	Export     exportCmd     `cmd:"" help:"Serve counters to Prometheus and push them by OTLP, until a signal."`
	Flows      flowsCmd      `cmd:"" help:"List, add and remove the flows of a running instance."`
	QueuePairs queuePairsCmd `cmd:"" aliases:"qp" help:"List, connect and try out the queue pairs of a running instance."`
	Instances  instancesCmd  `cmd:"" help:"List the instances of this host, running or not, with what each has left."`
	Clean      cleanCmd      `cmd:"" help:"Remove the pins, programs and mirrors of instances that no process runs."`
	Detach     detachCmd     `cmd:"" help:"Take the programs of an instance off its hooks at once, also where it hangs."`
	Explain    explainCmd    `cmd:"" help:"Show which flow counts a packet, which flows it shadows, and why."`
	Replay     replayCmd     `cmd:"" help:"Count a capture by flows, with the classifier that counts on an interface."`
	Selftest   selftestCmd   `cmd:"" help:"Compare sent with counted on a real interface: egress, ingress, RDMA."`
	Check      checkCmd      `cmd:"" help:"Verify a mirror or a configuration: everything that is wrong is named."`
	Doctor     doctorCmd     `cmd:"" help:"Test the abilities of this host: every backend's result, the reason and the next step."`
	Version    versionCmd    `cmd:"" help:"Print the versions of this program, of the plugin's protocol and of the mirror's format."`
	Completion completionCmd `cmd:"" help:"Print a completion script for a shell."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:""`
	Man        manCmd        `cmd:"" name:"__man" hidden:""`
}

const description = `Counts network flows where counting is cheapest and mirrors the values into shared memory.

Data goes to standard output, talk to standard error. Exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 ran but degraded (with --strict).`

// Main runs the command line args and returns the exit code of the process.
func Main(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, args []string) (code int) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case exit: // --help
			code = int(e)
		default:
			panic(e)
		}
	}()
	if code, is := engine.TrialMain(); is {
		return code
	}

	var r root
	parser, err := newParser(&r, stdout, stderr)
	if err != nil {
		return report(stderr, err, nil)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		var parse *kong.ParseError
		if errors.As(err, &parse) {
			kctx = parse.Context
		}
		return report(stderr, &usageError{usage.Explain(err)}, &commandLine{args, kctx})
	}
	line := &commandLine{args, kctx}
	named, err := settle(kctx)
	if err != nil {
		return report(stderr, err, line)
	}

	if !r.Run.reloads() { // with --config, run reloads the file at SIGHUP; all else ends
		hangup, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
		ctx = hangup
	}
	env := &Env{
		Context: ctx,
		Stdin:   stdin,
		Stdout:  stdout,
		Stderr:  stderr,
		Logger:  r.Log.logger(stderr),
		TTY:     format.IsTerminal(stdout) && os.Getenv("TERM") != "dumb",
		named:   named,
		model:   parser.Model,
		line:    line,
	}
	return report(stderr, kctx.Run(env), line)
}

// exit is the value of a panic. --help and --version make kong call its exit function, which must not return. It panics
// with the code, and Main recovers it.
type exit int

// newParser builds the parser of the command line into r.
func newParser(r *root, stdout, stderr io.Writer) (*kong.Kong, error) {
	return kong.New(r,
		kong.Name("flowtally"),
		kong.Description(description),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.ValueFormatter(helpOf),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
	)
}

// helpOf returns the help of a flag or an argument, with its default. Kong already shows the default of a flag without
// a placeholder, as in --output="table".
func helpOf(v *kong.Value) string {
	help := kong.DefaultHelpValueFormatter(v)
	if v.Flag != nil && v.Flag.PlaceHolder == "" {
		return help
	}
	return help + manual.Default(v)
}
