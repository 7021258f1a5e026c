package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/cost"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/reload"
	"github.com/flowtally/flowtally/dataplane"
)

// applyCmd changes a running instance to match a configuration file.
type applyCmd struct {
	outputFlag
	File     string        `short:"f" help:"The configuration file. Default: the file that the instance was started with." placeholder:"FILE"`
	DryRun   bool          `help:"Print the difference and change nothing."`
	Prune    bool          `help:"Remove flows of the instance that are not in the file, also flows of flows add."`
	Yes      bool          `short:"y" help:"Also where every flow of the instance is removed."`
	Instance instanceName  `help:"The instance, whatever the file names. Without it the file and $$FLOWTALLY_INSTANCE must not differ." placeholder:"NAME"`
	Mirror   string        `help:"The mirror's file, in place of the file's, as for run." env:"FLOWTALLY_MIRROR" placeholder:"PATH"`
	Socket   string        `help:"The control socket. Empty: as for flows." env:"FLOWTALLY_SOCKET" placeholder:"PATH"`
	Timeout  time.Duration `help:"Give up on an instance that has not answered by then; the change is undone. 0: wait." default:"0" placeholder:"DURATION"`
}

// Help is shown by apply --help.
func (*applyCmd) Help() string {
	return `The instance becomes the file: flows that are not there are added, changed ones are changed in their places, flows of an earlier file that are gone are removed. Everything changes, or nothing does. The flows that do not change are counted without a gap. Flows of "flowtally flows add" stay, unless the file has their names or --prune is given. The settings interfaces, mirror.counters, mirror.history_period, mirror.latency_counters, poll.period, poll.idle_period and xdp.keep_pins change as well. Another setting that differs is named, and nothing changes: restart the instance for it.

A line is printed for each change: "+ web" was added, "- old" was removed, "~ dns: count -> drop" was changed.

Examples:

  flowtally apply --dry-run

  flowtally apply -f /etc/flowtally.yaml

  flowtally apply -f edge.yaml --instance edge --prune -o json`
}

func (c *applyCmd) Run(env *Env) error {
	restoreGC := collectLess()
	defer restoreGC()

	var cfg dataplane.Config
	if c.File != "" {
		var err error
		if cfg, err = c.load(env, c.File); err != nil {
			return err
		}
	}
	name, refused, err := c.target(cfg)
	if err != nil {
		return &usageError{err}
	}

	var d dataplane.Difference
	instance := controlFlag{socketFlag{Instance: instanceName(name), Socket: c.Socket}, c.Timeout}
	err = instance.with(env, func(ctx context.Context, svc dataplane.Service) error {
		info, err := svc.Info(ctx)
		if err != nil {
			return fmt.Errorf("reading the identity of instance %s: %w", name, err)
		}
		name = info.Instance

		file := c.File
		switch {
		case file == "" && info.File == "":
			return &usageError{withHint(fmt.Errorf("applying to instance %s: it was started without a configuration file", info.Instance), "flowtally apply -f FILE --instance %s", info.Instance)}
		case file == "":
			file = info.File
			if cfg, err = c.load(env, file); err != nil {
				return err
			}
		case sameFile(file, info.File): // the instance came from this file, so the name in it does not matter
		case refused != nil:
			return refused
		case c.Instance == "" && cmp.Or(cfg.Instance, "default") != info.Instance:
			return c.refused(file, cfg, info.Instance, "the socket")
		}

		cfg.Instance = info.Instance
		d, err = c.apply(ctx, svc, cfg, info, file)
		return err
	})
	if err != nil {
		return err
	}
	return c.print(env, name, d)
}

// load reads the file. reload.Load waits until an editor has finished writing it.
func (c *applyCmd) load(env *Env, file string) (dataplane.Config, error) {
	cfg, err := reload.Load(env.Context, file)
	if errors.Is(err, fs.ErrNotExist) {
		err = withHint(err, "-f FILE names the file that flowtally run was started with")
	}
	if err != nil {
		return cfg, &usageError{directory(err)}
	}
	return cfg, nil
}

// target returns the name of the instance: from the flag, else from the file, else from the environment.
//
// FLOWTALLY_INSTANCE alone must not apply a file to an instance that the file does not name: the variable may be left
// over from other work. Then refused is the error. Run drops it if the instance was started with this very file.
func (c *applyCmd) target(cfg dataplane.Config) (name string, refused, err error) {
	name, err = nameInstance(c.Instance, "")
	if err != nil || c.Instance != "" || c.File == "" {
		return name, nil, err
	}

	if selected := os.Getenv("FLOWTALLY_INSTANCE"); selected != "" && cfg.Instance != selected {
		return name, c.refused(c.File, cfg, selected, "$FLOWTALLY_INSTANCE"), nil
	}
	name, err = nameInstance("", cfg.Instance)
	return name, nil, err
}

// refused returns the error for a file that does not name the selected instance. by says what selected it.
func (c *applyCmd) refused(file string, cfg dataplane.Config, selected, by string) error {
	names := "names no instance"
	if cfg.Instance != "" {
		names = "names instance " + cfg.Instance
	}
	return &usageError{withHint(fmt.Errorf("applying %s: the file %s, and %s selects instance %s", file, names, by, selected), "--instance NAME says which; or instance: %s in the file", selected)}
}

// sameFile reports whether two paths lead to one file.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return b != "" && errX == nil && errY == nil && os.SameFile(x, y)
}

// apply changes the instance to match cfg. Without --yes it refuses to remove every flow: an empty file is more likely a
// mistake.
func (c *applyCmd) apply(ctx context.Context, svc dataplane.Service, cfg dataplane.Config, info dataplane.Info, file string) (dataplane.Difference, error) {
	cfg.Mirror.Path = cmp.Or(c.Mirror, cfg.Mirror.Path, info.Mirror) // run --mirror is not in the file

	// Only a file without flows can leave the instance without any, so other files need no extra dry run.
	if len(cfg.Flows) == 0 && !c.DryRun && !c.Yes {
		d, err := reload.Apply(ctx, svc, cfg, reload.Options{DryRun: true, Prune: c.Prune})
		if err != nil {
			return d, fmt.Errorf("applying %s to instance %s: %w", file, info.Instance, err)
		}
		if leavesNone(d) {
			return d, withHint(fmt.Errorf("applying %s to instance %s: it would remove every flow, %d of them; nothing was changed", file, info.Instance, len(d.Removed)),
				"AGAIN --yes # --dry-run prints the difference")
		}
	}

	d, err := reload.Apply(ctx, svc, cfg, reload.Options{DryRun: c.DryRun, Prune: c.Prune})
	if err != nil {
		return d, fmt.Errorf("applying %s to instance %s: %w", file, info.Instance, err)
	}
	if !c.DryRun {
		noteInJournal(fmt.Sprintf("apply: %s to instance %s: %s", file, info.Instance, reload.Summary(d)))
	}
	return d, nil
}

// leavesNone reports whether the instance has flows before a change and none after it.
func leavesNone(d dataplane.Difference) bool {
	return len(d.Removed) > 0 && d.Unchanged+len(d.Changed)+len(d.Renamed)+len(d.Added) == 0
}

// print prints the difference as data, and its cost and a summary as messages.
func (c *applyCmd) print(env *Env, instance string, d dataplane.Difference) error {
	if c.json() {
		return reload.JSON(env.Stdout, instance, c.DryRun, d)
	}

	if _, err := fmt.Fprint(env.Stdout, format.PrintableLines(reload.Text(d))); err != nil {
		return err
	}
	if d.Cost != nil {
		fmt.Fprintf(env.Stderr, "flowtally: instance %s: after the change: %s\n", instance, cost.Line(d.Cost))
	}
	summary := reload.Summary(d)
	if c.DryRun {
		summary += "; nothing was changed, as --dry-run asks for"
	}
	fmt.Fprintf(env.Stderr, "flowtally: instance %s: %s\n", instance, summary)
	return nil
}
