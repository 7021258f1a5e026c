package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/reload"
	"github.com/flowtally/flowtally/dataplane"
)

// applyCmd makes a running instance a configuration file.
type applyCmd struct {
	outputFlag
	File     string       `short:"f" help:"The configuration file." default:"/etc/flowtally.yaml" placeholder:"FILE"`
	DryRun   bool         `help:"Print the difference and change nothing."`
	Prune    bool         `help:"Remove flows of the instance that are not in the file, also flows of flows add."`
	Instance instanceName `help:"The instance, in place of the file's. $$FLOWTALLY_INSTANCE names it where neither does." placeholder:"NAME"`
	Mirror   string       `help:"The mirror's file, in place of the file's, as for run." env:"FLOWTALLY_MIRROR" placeholder:"PATH"`
	Socket   string       `help:"The control socket. Empty: as for flows." env:"FLOWTALLY_SOCKET" placeholder:"PATH"`
}

func (c *applyCmd) Run(env *Env) error {
	cfg, err := reload.Load(env.Context, c.File)
	if errors.Is(err, fs.ErrNotExist) {
		err = withHint(err, "-f FILE names the file that flowtally run was started with")
	}
	if err != nil {
		return &usageError{err}
	}
	if cfg.Instance, err = nameInstance(c.Instance, cfg.Instance); err != nil {
		return &usageError{err}
	}
	if c.Mirror != "" {
		cfg.Mirror.Path = c.Mirror
	}
	socket := socketFlag{Instance: instanceName(cfg.Instance), Socket: c.Socket}
	return socket.with(env, func(svc dataplane.Service) error {
		info, err := svc.Info(env.Context)
		if err != nil {
			return fmt.Errorf("reading the identity of instance %s: %w", cfg.Instance, err)
		}
		if cfg.Mirror.Path == "" {
			cfg.Mirror.Path = info.Mirror // run may have been told another path than the default
		}
		d, err := reload.Apply(env.Context, svc, cfg, reload.Options{DryRun: c.DryRun, Prune: c.Prune})
		if err != nil {
			return fmt.Errorf("applying %s to instance %s: %w", c.File, info.Instance, err)
		}
		if c.json() {
			return reload.JSON(env.Stdout, info.Instance, c.DryRun, d)
		}
		if _, err := fmt.Fprint(env.Stdout, format.PrintableLines(reload.Text(d))); err != nil {
			return err
		}
		summary := reload.Summary(d)
		if c.DryRun {
			summary += "; nothing was changed, as --dry-run asks for"
		}
		fmt.Fprintf(env.Stderr, "flowtally: instance %s: %s\n", info.Instance, summary)
		return nil
	})
}
