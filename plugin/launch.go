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

// Launch starts the plugin and configures it. ctx bounds the launch alone: [Client.Close] ends the plugin.
//
// After an error no process is left, and nothing is attached or pinned. A configuration that keeps pins keeps those that
// the start has found.
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
		return nil, err // what is attached and pinned is the other instance's
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

	// The flows are kept once, encoded.
	c.flows.add(cfg.Flows, encoded)
	cfg.Flows = nil
	c.opts.Config.Flows = nil

	close(s.ready)
	go c.supervise(s)
	return c, nil
}

// startPastCrashes starts the plugin. A plugin that crashes in a verb of an RDMA device is started again: crashes leaves
// the device out after its second crash in one verb.
func startPastCrashes(ctx context.Context, o *Options, cfg *pluginv1.Config, crashes *child.Crashes) (*session, error) {
	s, err := start(ctx, o, cfg, crashes)
	for starts := 1; err != nil && ctx.Err() == nil && starts < child.MaxLaunchCrashes; starts++ {
		if crashes.Count() < starts {
			break // the last start has failed otherwise, and would again
		}
		o.Logger.Warn("the plugin died in a verb of an RDMA device, and is started again", "error", err)
		s, err = start(ctx, o, cfg, crashes)
	}
	return s, err
}

// Options of Launch. The zero value starts flowtally-plugin with an empty configuration. Most callers set Config.
type Options struct {
	// Config of the instance.
	Config dataplane.Config

	// File is the path of the file that Config was read from, which Info tells. Optional.
	File string

	// Logger gets the log of the plugin and of the supervisor. nil discards.
	Logger *slog.Logger

	// Path of the plugin's binary. Empty means BinaryName beside this program's executable, else in $PATH.
	Path string

	// Args are handed to the binary. flowtally-plugin takes none.
	Args []string

	// Env is added to this process's environment, as "KEY=value".
	Env []string

	// Stderr gets a copy of the plugin's stderr, byte by byte. One goroutine at a time writes to it, and none after a
	// write has failed. Optional.
	Stderr io.Writer

	// StartTimeout bounds the time from the start of the process to its handshake. 0 means 15 s.
	StartTimeout time.Duration

	// ConfigureTimeout bounds the start of the instance in the process. 0 means 60 s, half a second more for each
	// interface that is counted on, and a millisecond more for each flow.
	ConfigureTimeout time.Duration

	// CloseTimeout bounds the orderly end, after which the process is killed. A process that fails health checks is
	// killed after a third of it. 0 means 30 s.
	CloseTimeout time.Duration

	// Watchdog is how long a plugin may take to reply to a health check before it is killed and started again. A sixth
	// of it passes between two checks. 0 means DefaultWatchdog; a negative value, for debuggers, means for ever.
	Watchdog time.Duration

	// RestartMin and RestartMax bound the pause before a restart, which doubles as long as the plugin dies soon.
	// 0 means 100 ms and 10 s.
	RestartMin, RestartMax time.Duration
}

// DefaultWatchdog stands for an Options.Watchdog of 0.
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

// sharedWriter serialises the writes of several streams and several processes.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}
