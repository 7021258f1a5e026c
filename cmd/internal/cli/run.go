package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/flowtally/flowtally/cmd/internal/reload"
	"github.com/flowtally/flowtally/configs"
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
	restoreGC := collectLess()
	cfg, err := c.configure(env)
	if err != nil {
		return &usageError{err}
	}
	configured := len(cfg.Flows) // start removes the flows from cfg

	var hangups chan os.Signal // nil: SIGHUP ends the instance
	if c.reloads() {
		hangups = make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
	}

	// Open the socket first. It costs little, and fails if an instance of this name runs, before anything is attached.
	control, err := c.listen(env, cfg)
	if err != nil {
		return err
	}
	if control != nil {
		defer func() { err = errors.Join(err, control.Close()) }()
	}

	exit := newEmergencyExit(env, cfg, c.Embedded, c.endings())
	defer exit.close()

	svc, err := c.start(env, &cfg)
	if err != nil {
		if env.Context.Err() != nil {
			return fmt.Errorf("starting instance %s: %w; %s", cfg.Instance, errStopped, exit.left(err))
		}
		return c.startError(err, cfg)
	}
	restoreGC()
	exit.started(svc)

	r := &running{
		env:        env,
		svc:        svc,
		instance:   cfg.Instance,
		configured: configured,
		strict:     c.Strict,
		reload: &reload.Loop{
			Signals:  hangups,
			Load:     func(ctx context.Context) (dataplane.Config, error) { return c.loadAgain(ctx, cfg.Instance) },
			Service:  svc,
			Logger:   env.Logger,
			Notify:   notifySystemd,
			Instance: cfg.Instance,
		},
	}
	err = r.serve(control)
	return errors.Join(err, c.stop(svc, exit))
}

// configure returns the configuration of the file, or of the flags that replace a file, with the name of the instance.
func (c *runCmd) configure(env *Env) (dataplane.Config, error) {
	cfg, err := c.load(env)
	if err != nil {
		return cfg, err
	}

	if named := string(c.Instance); named != "" && cfg.Instance != "" && cfg.Instance != named {
		// The user may have meant the file's instance: this one takes over its mirror and totals if both have one path.
		env.Logger.Warn("--instance goes before the file's instance", "instance", named, "file", cfg.Instance)
	}
	cfg.Instance, err = nameInstance(c.Instance, cfg.Instance)
	return cfg, err
}

// load reads --config, or makes a configuration of --interface, --flow and --backend.
func (c *runCmd) load(env *Env) (cfg dataplane.Config, err error) {
	switch quick := len(c.Interface) > 0 || len(c.Flow) > 0 || c.Backend != "auto"; {
	case c.Config != "" && quick:
		return cfg, errors.New("--config excludes --interface, --flow and --backend, which stand for a file")
	case c.Config != "":
		var notes []configs.Note
		cfg, notes, err = loadNoted(env.Context, c.Config)
		for _, n := range notes {
			env.Logger.Warn("configuration: "+n.Text, "object", n.Object, "try", n.Suggestion)
		}
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

// quick returns the configuration described by --interface, --flow and --backend.
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

	// After a mistake above, Validate would complain again about a flow without a match.
	if len(problems) == 0 {
		if err := cfg.Validate(); err != nil {
			problems = append(problems, err)
		}
	}
	return cfg, errors.Join(problems...)
}

// reloads reports whether SIGHUP makes the instance reload its file. Without a file, SIGHUP ends the instance.
func (c *runCmd) reloads() bool { return c.Config != "" }

// listen opens the control socket. It returns nil for --socket -.
func (c *runCmd) listen(env *Env, cfg dataplane.Config) (*plugin.Control, error) {
	path := c.Socket
	switch path {
	case "-":
		return nil, nil
	case "":
		path = plugin.ControlPath(cfg.Instance)
	}

	control, err := plugin.ListenControl(path, env.Logger)
	if err != nil {
		err = fmt.Errorf("starting instance %s: %w", cfg.Instance, err)
		if errors.Is(err, dataplane.ErrPermission) {
			err = withHint(err, "SUDO # or with --socket PATH in a directory of your own (--socket - for none)")
		}
		return nil, withMissingInterfaces(err, cfg)
	}
	return control, nil
}

// endings returns the signals that end the instance.
func (c *runCmd) endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !c.reloads() {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// start starts the instance, in a plugin or in this process. It removes the flows from cfg, so that they can be garbage
// collected: the caller keeps cfg as long as the instance runs, and the instance has its own copy of the flows.
func (c *runCmd) start(env *Env, cfg *dataplane.Config) (dataplane.Service, error) {
	whole := *cfg
	cfg.Flows = nil

	if c.Embedded {
		e, err := engine.New(env.Context, whole, engine.Options{Logger: env.Logger, Trial: engine.SelfTrial()})
		if err != nil {
			return nil, err // never a nil *Engine in a Service
		}
		return fromFile{e, c.file()}, nil
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

// fromFile adds the configuration file to what an instance in this process tells about itself. A plugin is told at its
// launch.
type fromFile struct {
	dataplane.Service
	file string
}

// Info implements dataplane.Service.
func (f fromFile) Info(ctx context.Context) (dataplane.Info, error) {
	info, err := f.Service.Info(ctx)
	info.File = f.file
	return info, err
}

// file returns the absolute path of the configuration file, because flowtally apply may run in another directory. It
// returns "" without a file.
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

// loadAgain reads the file for a reload. The instance keeps its name and --mirror, whatever the file says: a new name
// takes effect at the next start.
func (c *runCmd) loadAgain(ctx context.Context, instance string) (dataplane.Config, error) {
	cfg, err := reload.Again(ctx, c.Config)
	if c.Mirror != "" {
		cfg.Mirror.Path = c.Mirror
	}
	cfg.Instance = instance
	return cfg, err
}

// stop closes the instance. If a control call hangs in an embedded engine, Close gives up, and we detach the programs by
// their pins instead.
func (c *runCmd) stop(svc dataplane.Service, exit *emergencyExit) error {
	err := svc.Close()
	if err == nil || errors.Is(err, dataplane.ErrClosed) {
		return nil
	}

	errs := []error{fmt.Errorf("closing instance %s: %w", exit.cfg.Instance, err)}
	if c.Embedded && errors.Is(err, engine.ErrUnreturned) {
		errs = append(errs, exit.engine.Release(true))
	}
	return errors.Join(errs...)
}
