package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/instances"
	"github.com/flowtally/flowtally/cmd/internal/reload"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/plugin"
)

// runCmd runs an instance until a signal.
type runCmd struct {
	Config    string       `short:"c" help:"The configuration file." placeholder:"FILE"`
	Interface []string     `short:"i" help:"In place of a file: count on this interface; MODE is auto, native or generic. May be repeated." complete:"interfaces" placeholder:"NAME[=MODE]"`
	Flow      []string     `help:"In place of a file: count this flow. May be repeated." sep:"none" placeholder:"NAME=MATCH"`
	Backend   string       `help:"In place of a file: ${enum}." enum:"auto,rdma,xdp,sim" default:"auto"`
	Instance  instanceName `help:"The instance, in place of the file's. $$FLOWTALLY_INSTANCE names it where neither does." placeholder:"NAME"`
	Mirror    string       `help:"The mirror's file, in place of the file's." env:"FLOWTALLY_MIRROR" placeholder:"PATH"`
	Socket    string       `help:"The control socket. Empty: /run/flowtally-control/INSTANCE.sock, or flowtally-control in $$XDG_RUNTIME_DIR of another user than root; - for none." env:"FLOWTALLY_SOCKET" placeholder:"PATH"`
	Plugin    string       `help:"The plugin's binary. Empty: flowtally-plugin beside this program, then in PATH." env:"FLOWTALLY_PLUGIN" placeholder:"PATH"`
	Embedded  bool         `help:"Count in this process, which then needs the privileges, in place of the plugin's."`
	Strict    bool         `help:"End with 3 when, once started, a condition is of high severity or a flow is not counted."`
}

// Help is shown by run --help.
func (*runCmd) Help() string {
	return `Launches the plugin, which counts with privilege, and serves the control socket of "flowtally flows". At SIGHUP it reads --config again and becomes that file, as "flowtally apply" does; a file with a mistake changes nothing. At SIGINT or SIGTERM it detaches its programs, unless xdp.keep_pins lets them go on counting; the mirror's last values stay readable, and totals go on at the next start.

Examples:

  flowtally run --config /etc/flowtally.yaml

  flowtally run --interface eth0 --flow 'web=tcp dport 443' --flow 'rest=any'

  flowtally run --backend sim --flow 'web=tcp dport 443' --socket - --embedded`
}

func (c *runCmd) Run(env *Env) (err error) {
	collectAsBefore := collectLess()
	cfg, err := c.load(env.Context)
	if err != nil {
		return &usageError{err}
	}
	flows := len(cfg.Flows)
	if named := string(c.Instance); named != "" && cfg.Instance != "" && cfg.Instance != named {
		// It takes over that instance's mirror, and its totals.
		env.Logger.Warn("--instance goes before the file's instance", "instance", named, "file", cfg.Instance)
	}
	if cfg.Instance, err = nameInstance(c.Instance, cfg.Instance); err != nil {
		return &usageError{err}
	}
	var hangups chan os.Signal // nil: SIGHUP ends the instance
	if c.reloads() {
		hangups = make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
	}
	// The socket comes first: it is cheap, and tells that an instance of this
	// name runs before anything is attached.
	var control *plugin.Control
	if c.Socket != "-" {
		path := c.Socket
		if path == "" {
			path = plugin.ControlPath(cfg.Instance)
		}
		if control, err = plugin.ListenControl(path, env.Logger); err != nil {
			err = fmt.Errorf("starting instance %s: %w", cfg.Instance, err)
			if errors.Is(err, dataplane.ErrPermission) {
				err = withHint(err, "SUDO # or with --socket PATH in a directory of your own (--socket - for none)")
			}
			return withMissingInterfaces(err, cfg)
		}
		defer func() { err = errors.Join(err, control.Close()) }()
	}
	signals := make(chan os.Signal, 2) // from here on: env.Context ends with the first of them
	signal.Notify(signals, c.endings()...)
	defer signal.Stop(signals)
	over := make(chan struct{})
	defer close(over)
	end := &ending{env: env, cfg: cfg, embedded: c.Embedded, exit: engine.PrepareExit(cfg), signals: signals, over: over}
	go end.atOnce()
	svc, err := c.start(env, &cfg)
	if err != nil {
		if env.Context.Err() != nil {
			return fmt.Errorf("starting instance %s: %w; %s", cfg.Instance, errStopped, end.left(err))
		}
		return c.startError(err, cfg)
	}
	collectAsBefore()
	r := &running{env: env, svc: svc, instance: cfg.Instance, flows: flows, strict: c.Strict, reload: &reload.Loop{
		Signals: hangups, Service: svc, Logger: env.Logger, Notify: notifySystemd, Instance: cfg.Instance,
		Load: func(ctx context.Context) (dataplane.Config, error) {
			again, err := reload.Again(ctx, c.Config)
			if c.Mirror != "" {
				again.Mirror.Path = c.Mirror
			}
			again.Instance = cfg.Instance // the file names another one no sooner than the next start
			return again, err
		},
	}}
	end.running(svc)
	err = r.serve(control)
	if closeErr := svc.Close(); closeErr != nil && !errors.Is(closeErr, dataplane.ErrClosed) {
		err = errors.Join(err, fmt.Errorf("closing instance %s: %w", cfg.Instance, closeErr))
		if c.Embedded && errors.Is(closeErr, engine.ErrUnreturned) {
			err = errors.Join(err, end.exit.Release(true))
		}
	}
	return err
}

// startError completes the error of a failed start.
func (c *runCmd) startError(err error, cfg dataplane.Config) error {
	invalid := errors.Is(err, dataplane.ErrInvalid)
	err = fmt.Errorf("starting instance %s: %w", cfg.Instance, err)
	if invalid {
		return &usageError{err} // the configuration is wrong for this host
	}
	// An interface of a file may come later, as at boot, so systemd is to try again. One of the command line is a mistake.
	for _, missing := range missingInterfaces(cfg) {
		if name := strings.TrimPrefix(missing.Object, "interface "); c.Config == "" && strings.Contains(err.Error(), name+": not found") {
			return hintInterface(withDead(withMissingInterfaces(err, cfg), cfg), name)
		}
	}
	if strings.Contains(err.Error(), "RLIMIT_NOFILE") || strings.Contains(err.Error(), syscall.EMFILE.Error()) { // the plugin's too
		err = withHint(err, "ulimit -n 8192 # as root, or LimitNOFILE=8192 in the systemd unit; then start it again")
	}
	return withDead(withMissingInterfaces(err, cfg), cfg)
}

// withDead adds the instances that no process runs and that have left pins or a mirror: their programs may hold a hook,
// their mirrors fill the tmpfs, and their pins are of another size or release.
func withDead(err error, cfg dataplane.Config) error {
	unrelated := []error{plugin.ErrUntrusted, plugin.ErrIncompatible, dataplane.ErrPermission, fs.ErrNotExist}
	if slices.ContainsFunc(unrelated, func(is error) bool { return errors.Is(err, is) }) {
		return err
	}
	list, listErr := instances.List(given(cfg.Mirror.Path), given(cfg.XDP.PinDir))
	if listErr != nil {
		return err
	}
	told := err.Error()
	for _, i := range list {
		command := "flowtally clean --instance " + i.Name
		if i.State == instances.Dead || i.State == instances.Pins {
			if !strings.Contains(told, command) {
				err = errors.Join(err, fmt.Errorf("instance %s: no process runs it, and it has left %s: %s removes it, with its counts", i.Name, leftBy(i), command))
			}
		}
	}
	return err
}

// leftBy says what a dead instance has left.
func leftBy(i instances.Instance) string {
	switch {
	case i.Links > 0:
		return format.Plural(uint64(i.Links), "program", "programs") + " on hooks, pinned in " + i.Pins
	case i.Pins != "":
		return "pins in " + i.Pins
	}
	return fmt.Sprintf("a mirror of %s, %s", format.Bytes(i.Size), i.Mirror)
}

// withMissingInterfaces adds the missing interfaces to the error of a start that does not name
// them, or that does not say which name was meant: one attempt reports all causes.
func withMissingInterfaces(err error, cfg dataplane.Config) error {
	told := err.Error()
	for _, w := range missingInterfaces(cfg) {
		if near := strings.HasPrefix(w.Suggestion, "did you mean"); near || !strings.Contains(told, strings.TrimPrefix(w.Object, "interface ")) {
			err = errors.Join(err, fmt.Errorf("%s: %s: %s", w.Object, w.Text, w.Suggestion))
		}
	}
	return err
}

// reloads says that SIGHUP makes the instance read its file again. Without a file SIGHUP ends it.
func (c *runCmd) reloads() bool { return c.Config != "" }

// endings returns the signals that end the instance.
func (c *runCmd) endings() []os.Signal {
	if c.reloads() {
		return []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
}

// load returns the configuration of the file, or of the flags that stand for one.
func (c *runCmd) load(ctx context.Context) (dataplane.Config, error) {
	var cfg dataplane.Config
	var err error
	switch quick := len(c.Interface) > 0 || len(c.Flow) > 0 || c.Backend != "auto"; {
	case c.Config != "" && quick:
		return cfg, errors.New("--config excludes --interface, --flow and --backend, which stand for a file")
	case c.Config != "":
		cfg, err = loadConfig(ctx, c.Config)
	case quick:
		cfg, err = c.quick()
	default:
		return cfg, withHint(errors.New("nothing to count"), "flowtally run --config FILE # or --interface NAME --flow 'NAME=MATCH'")
	}
	if err != nil {
		return cfg, err
	}
	if c.Mirror != "" {
		cfg.Mirror.Path = c.Mirror
	}
	return cfg, nil
}

// quick returns the configuration that --interface, --flow and --backend say.
func (c *runCmd) quick() (dataplane.Config, error) {
	cfg := dataplane.Config{Backend: flow.Backend(c.Backend)}
	for _, s := range c.Interface {
		name, mode, _ := strings.Cut(s, "=")
		cfg.Interfaces = append(cfg.Interfaces, dataplane.Interface{Name: name, Mode: dataplane.Mode(mode)})
	}
	var problems []error
	for _, s := range c.Flow {
		name, text, ok := strings.Cut(s, "=")
		if !ok {
			problems = append(problems, fmt.Errorf("--flow %q: no =; it is NAME=MATCH, such as web='tcp dport 443'", s))
			continue
		}
		match, err := parseMatch(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("--flow %s: %w", name, err))
		}
		cfg.Flows = append(cfg.Flows, flow.Flow{Name: name, Match: match})
	}
	if len(problems) == 0 {
		if err := cfg.Validate(); err != nil {
			problems = append(problems, err)
		}
	}
	return cfg, errors.Join(problems...)
}

// collectLess has the garbage collector run half as often, until the result is called. A file of 100,000 flows makes
// a heap of 200 MB, of which little is garbage before all of it is.
func collectLess() (asBefore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	was := debug.SetGCPercent(200)
	return func() { debug.SetGCPercent(was) }
}

// start starts the instance, in a plugin or in this process. It removes the flows from cfg, whose caller
// keeps cfg as long as the instance runs: a running instance has a copy of the flows of its own.
func (c *runCmd) start(env *Env, cfg *dataplane.Config) (dataplane.Service, error) {
	whole := *cfg
	cfg.Flows = nil
	if c.Embedded {
		e, err := engine.New(env.Context, whole, engine.Options{Logger: env.Logger, Trial: engine.SelfTrial()})
		if err != nil {
			return nil, err // never a nil *Engine in a Service
		}
		return filed{e, c.file()}, nil
	}
	svc, err := plugin.Launch(env.Context, plugin.Options{Path: c.Plugin, Config: whole, File: c.file(), Logger: env.Logger})
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, plugin.ErrStart) {
		return nil, withHint(err, "install flowtally-plugin beside flowtally, or --plugin PATH, or --embedded")
	}
	if err != nil {
		return nil, err // never a nil *plugin.Client in a Service
	}
	return svc, nil
}

// filed is an instance in this process that knows the configuration file it came from.
type filed struct {
	dataplane.Service
	file string
}

// Info implements dataplane.Service.
func (f filed) Info(ctx context.Context) (dataplane.Info, error) {
	info, err := f.Service.Info(ctx)
	info.File = f.file
	return info, err
}

// file returns the path of the configuration file, which does not depend on the working directory; empty: there is none.
func (c *runCmd) file() string {
	if c.Config == "" {
		return ""
	}
	abs, err := filepath.Abs(c.Config)
	if err != nil {
		return c.Config
	}
	return abs
}
