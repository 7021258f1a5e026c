package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin/internal/child"
	"github.com/flowtally/flowtally/plugin/internal/logwire"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// killGrace is how long a process may take to exit after its instance is closed, as in go-plugin.
const killGrace = 2 * time.Second

// session is one life of the plugin process.
type session struct {
	child   *child.Process
	gp      *goplugin.Client
	svc     *remote
	health  grpc_health_v1.HealthClient
	info    dataplane.Info
	started time.Time
	ready   chan struct{} // closed by cameUp, when calls and events may use the session
}

// kill ends the process, orderly if it still answers, and returns after all its output was read. It makes up for two
// faults of go-plugin, which waits forever for a process stopped by a signal, and leaves the directory of a process that
// never started.
func (s *session) kill() {
	hurry := time.AfterFunc(killGrace, func() { _ = s.child.Kill(context.Background()) })
	defer hurry.Stop()
	s.gp.Kill()
	if s.child.Dir != "" {
		_ = os.RemoveAll(s.child.Dir)
	}
}

// start starts one plugin and configures it. On error it leaves no process behind, and the error has the last output.
func start(ctx context.Context, o *Options, cfg *pluginv1.Config, crashes *child.Crashes, env ...string) (_ *session, err error) {
	path, file, err := find(o.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // a nil file's Close does nothing

	files, err := confineEnvironment(o.Config)
	if err != nil {
		return nil, err
	}
	excluded, err := crashes.Environment()
	if err != nil {
		return nil, err
	}
	env = append(environment(o), env...)
	env = append(env, files)
	env = append(env, excluded...)

	process := child.New(path, file, o.Args, env)
	process.RDMA = mayUseRDMA(cfg)
	m := cfg.GetMirror()
	process.Groups = []string{m.GetWaitGroup(), m.GetLiveGroup(), m.GetWordsGroup()}

	lines := logwire.NewLines(o.Logger, o.Stderr)
	s := &session{
		child:   process,
		gp:      goplugin.NewClient(clientConfig(o, process, lines)),
		started: time.Now(),
		ready:   make(chan struct{}),
	}
	stop := context.AfterFunc(ctx, func() { _ = process.Kill(ctx) })
	defer func() {
		stop()
		if err != nil {
			s.kill()
			crashes.Add(process)
		}
	}()

	protocol, err := s.gp.Client()
	if err != nil {
		s.kill() // afterwards lines has the whole output
		return nil, startError(ctx, path, process, lines, err)
	}
	raw, err := protocol.Dispense(dispensed)
	if err != nil {
		return nil, fmt.Errorf("starting plugin %s: %w: %w", path, ErrStart, err)
	}
	ends := raw.(*ends)
	s.svc = ends.svc
	s.health = grpc_health_v1.NewHealthClient(ends.cc)

	if s.info, err = s.configure(ctx, cfg, o.configureTimeout(cfg)); err != nil {
		s.kill()
		return nil, configureError(ctx, path, process, lines, err)
	}
	return s, nil
}

// clientConfig configures go-plugin to start the process and to write its standard error to lines.
func clientConfig(o *Options, process *child.Process, lines *logwire.Lines) *goplugin.ClientConfig {
	synced := logwire.NewLines(o.Logger, o.Stderr)
	return &goplugin.ClientConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: versions(nil),
		RunnerFunc:       process.Prepare,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		StartTimeout:     o.StartTimeout,
		Stderr:           lines,
		SyncStdout:       synced,
		SyncStderr:       synced,
		SkipHostEnv:      true,                                                    // environment filters it
		GRPCDialOptions:  []grpc.DialOption{grpc.WithContextDialer(process.Dial)}, // in place of go-plugin's own
		// The level must be Off. For any other logger, go-plugin parses the plugin's stderr and panics on a JSON line
		// whose "@message" is not a string.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
	}
}

// configure makes the plugin create its instance. If the process dies, configure waits until the cause is known.
func (s *session) configure(ctx context.Context, cfg *pluginv1.Config, bound time.Duration) (dataplane.Info, error) {
	callCtx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	info, err := s.svc.configure(callCtx, cfg)

	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		// It is the timeout, and the plugin has noticed it before this side.
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	if errors.Is(err, dataplane.ErrUnavailable) {
		select { // a dying process loses its connection first
		case <-s.child.Exited:
		case <-time.After(child.DrainTime):
		}
	}
	return info, err
}

// mayUseRDMA reports whether an RDMA device may count with this configuration.
func mayUseRDMA(cfg *pluginv1.Config) bool {
	allowed := func(backend string) bool { return backend == "" || backend == "auto" || backend == "rdma" }
	if allowed(cfg.Backend) || len(cfg.QueuePairs) > 0 {
		return true
	}
	return slices.ContainsFunc(cfg.Flows, func(f *pluginv1.Flow) bool { return f.Backend != "" && allowed(f.Backend) })
}

// ownVariables lists the variables from a host to its plugin. A plugin that is itself a host must not pass on its own.
var ownVariables = []string{
	child.RestartEnv, child.HostFDEnv, child.VerbsFDEnv, child.ExcludedEnv, child.ConfineEnv, child.UnconfinedEnv,
}

// environment returns the environment for the plugin: that of this process without ownVariables, plus Options.Env and the
// log level.
func environment(o *Options) []string {
	var env []string
	for _, kv := range append(os.Environ(), o.Env...) {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(kv, "PLUGIN_") || slices.Contains(ownVariables, name) {
			continue
		}
		env = append(env, kv)
	}
	return append(env, logwire.LevelEnv+"="+logwire.Level(o.Logger))
}

// startError returns the error for a process that ended before the handshake.
func startError(ctx context.Context, path string, c *child.Process, lines *logwire.Lines, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("starting plugin %s: %w", path, ctx.Err())
	}

	if v := c.Version(); v != 0 && v != ProtocolVersion {
		side := "the plugin is newer: upgrade this program, or install the plugin of its release"
		if v < ProtocolVersion {
			side = "the plugin is older: install the plugin of this program's release"
		}
		return fmt.Errorf("starting plugin %s: %w: it speaks protocol version %d, this program speaks %d; %s",
			path, ErrIncompatible, v, ProtocolVersion, side)
	}

	why := firstLine(err.Error())
	next := "is it a plugin of flowtally? run it by hand to see"
	if cause, ok := c.Ended(); ok {
		why = "it ended before the handshake (" + cause + ")"
	}
	if strings.Contains(why, "timeout while waiting") {
		why = "no handshake in time, so it was killed"
	}
	return fmt.Errorf("starting plugin %s: %w: %s; %s%s", path, ErrStart, why, next, quoted(lines))
}

// configureError returns the error of Configure. If the plugin has died, it adds the last output. An error of the plugin
// itself is returned unchanged. The process must have ended.
func configureError(ctx context.Context, path string, c *child.Process, lines *logwire.Lines, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		// The context killed the process, and the call failed because of that.
		return fmt.Errorf("configuring plugin %s: %w: %w", path, ctx.Err(), err)
	}
	if ctx.Err() != nil || !errors.Is(err, dataplane.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}

	why := "no reply in time, so it was killed"
	if errors.Is(err, dataplane.ErrUnavailable) {
		why = firstLine(err.Error())
		if cause, ok := c.Ended(); ok {
			why = "it ended (" + cause + ")"
		}
	}
	return fmt.Errorf("configuring plugin %s: %w: %s%s", path, ErrStart, why, quoted(lines))
}

// quoted returns the last output of the plugin, to append to an error.
func quoted(lines *logwire.Lines) string {
	tail := lines.Last()
	if tail == "" {
		return ""
	}
	return "; it wrote:\n  " + strings.ReplaceAll(tail, "\n", "\n  ")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return text(line)
}
