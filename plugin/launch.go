package plugin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin/internal/child"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// Launch starts a plugin with the given configuration. ctx applies to the launch only. The caller must call [Client.Close]
// to end the plugin.
//
// After an error, Launch leaves no process behind and nothing attached or pinned. With [dataplane.XDPConfig].KeepPins, the
// pins of an earlier run stay.
func Launch(ctx context.Context, opts Options) (*Client, error) {
	o := opts.withDefaults()

	cfg, err := configToProto(o.Config)
	if err != nil {
		return nil, err
	}
	encoded, err := encodeFlows(cfg.Flows)
	if err != nil {
		return nil, err
	}

	before := look(o.Config)
	crashes := child.NewCrashes()
	s, err := startPastCrashes(ctx, &o, cfg, crashes)
	if errors.Is(err, dataplane.ErrInUse) {
		return nil, err // programs and pins belong to the other instance
	}
	if err != nil {
		if l, any := before.leavings(); any {
			err = errors.Join(err, release(&o, l, before.instance))
		}
		return nil, err
	}

	c := &Client{
		opts:      o,
		log:       o.Logger,
		crashes:   crashes,
		base:      cfg,
		finished:  make(chan struct{}),
		changing:  make(chan struct{}, 1),
		current:   s,
		info:      s.info,
		receivers: make(map[*receiver]struct{}),
		added:     make(map[string]bool),
		words:     make(map[string]bool),
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.patience, c.hurry = context.WithCancelCause(context.Background())

	// Only the encoded flows stay in memory.
	c.flows.add(cfg.Flows, encoded)
	cfg.Flows = nil
	c.opts.Config.Flows = nil

	close(s.ready)
	go c.supervise(s)
	return c, nil
}

// startPastCrashes starts a plugin, again if it crashes in a verb of an RDMA device. After the second crash in one verb,
// crashes excludes the device.
func startPastCrashes(ctx context.Context, o *Options, cfg *pluginv1.Config, crashes *child.Crashes) (*session, error) {
	s, err := start(ctx, o, cfg, crashes)
	for starts := 1; err != nil && ctx.Err() == nil && starts < child.MaxLaunchCrashes; starts++ {
		if crashes.Count() < starts {
			break // the last start failed for another reason, and would fail again
		}
		o.Logger.Warn("the plugin died in a verb of an RDMA device, and is started again", "error", err)
		s, err = start(ctx, o, cfg, crashes)
	}
	return s, err
}

// Options for [Launch]. Only Config is required.
type Options struct {
	// Config of the instance.
	Config dataplane.Config

	// File is the path of the file that Config was read from, for [dataplane.Info]. Optional.
	File string

	// Logger receives the log of the plugin and of its supervision. nil discards it.
	Logger *slog.Logger

	// Path of the plugin's binary. If it is empty, [Find] looks for [BinaryName].
	Path string

	// Args for the binary. flowtally-plugin has none.
	Args []string

	// Env has variables to add to the environment of this process, as "KEY=value".
	Env []string

	// Stderr receives a copy of the plugin's standard error. Writes come from one goroutine at a time, and stop after
	// the first error. Optional.
	Stderr io.Writer

	// StartTimeout limits the time from the start of the process to its handshake. 0 means 15 s.
	StartTimeout time.Duration

	// ConfigureTimeout limits the start of the instance in the process. 0 means 60 s, plus 0.5 s for each interface to
	// count on and 1 ms for each flow.
	ConfigureTimeout time.Duration

	// CloseTimeout is how long Close waits before it kills the plugin. A plugin that fails health checks gets only a third
	// of it. 0 means 30 s.
	CloseTimeout time.Duration

	// Watchdog is how long a plugin may leave health checks unanswered before it is killed and started again. Checks are
	// a sixth of it apart. 0 means [DefaultWatchdog]. A negative value disables the checks, for debuggers.
	Watchdog time.Duration

	// RestartMin and RestartMax limit the pause before a restart, which doubles each time the plugin dies soon.
	// 0 means 100 ms and 10 s.
	RestartMin, RestartMax time.Duration
}

// DefaultWatchdog is the default of [Options].Watchdog.
const DefaultWatchdog = 30 * time.Second

func (o Options) withDefaults() Options {
	setDefault(&o.StartTimeout, 15*time.Second)
	setDefault(&o.CloseTimeout, 30*time.Second)
	setDefault(&o.Watchdog, DefaultWatchdog)
	setDefault(&o.RestartMin, 100*time.Millisecond)
	setDefault(&o.RestartMax, 10*time.Second)
	o.RestartMax = max(o.RestartMax, o.RestartMin)

	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Stderr != nil {
		o.Stderr = &sharedWriter{w: o.Stderr}
	}
	return o
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// sharedWriter serializes the writes of several streams and processes.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}
