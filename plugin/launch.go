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
)

// Options of Launch. The zero value starts flowtally-plugin with an empty configuration. Most callers set Config.
type Options struct {
	// Path of the plugin's binary. Empty means BinaryName beside this program's
	// executable, else in $PATH.
	Path string
	// Args are handed to the binary. flowtally-plugin takes none.
	Args []string
	// Env is added to this process's environment, as "KEY=value".
	Env []string
	// Config of the instance.
	Config dataplane.Config
	// File is the path of the file that Config was read from, which Info tells. Optional.
	File string
	// Logger gets the log of the plugin and of the supervisor. nil discards.
	Logger *slog.Logger
	// Stderr gets a copy of the plugin's stderr, byte by byte; it is written to
	// by one goroutine at a time, and no more once a write failed. Optional.
	Stderr io.Writer
	// StartTimeout bounds the time from the start of the process to its
	// handshake. 0 means 15 s.
	StartTimeout time.Duration
	// ConfigureTimeout bounds the start of the instance in it. 0 means 60 s, half a second more for each interface that is
	// counted on, and a millisecond more for each flow.
	ConfigureTimeout time.Duration
	// CloseTimeout bounds the orderly end. The process is killed after it, or after a third of it if it fails health
	// checks. 0 means 30 s.
	CloseTimeout time.Duration
	// Watchdog is how long a plugin may take to reply to a health check before it is killed and started again; a sixth
	// of it passes between two checks. 0 means DefaultWatchdog; a negative value, for debuggers, means for ever.
	Watchdog time.Duration
	// RestartMin and RestartMax bound the pause before a restart, which doubles
	// as long as the plugin dies soon. 0 means 100 ms and 10 s.
	RestartMin, RestartMax time.Duration
}

// DefaultWatchdog is the bound of Options.Watchdog.
const DefaultWatchdog = 30 * time.Second

func (o Options) withDefaults() Options {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&o.StartTimeout, 15*time.Second)
	or(&o.CloseTimeout, 30*time.Second)
	or(&o.Watchdog, DefaultWatchdog)
	or(&o.RestartMin, 100*time.Millisecond)
	or(&o.RestartMax, 10*time.Second)
	if o.Stderr != nil {
		o.Stderr = &sharedWriter{w: o.Stderr}
	}
	o.RestartMax = max(o.RestartMax, o.RestartMin)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
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

// Launch starts the plugin and configures it. ctx bounds the launch alone;
// Close ends the plugin. An error says why, and no process is left. Nothing is attached or pinned then, unless the
// configuration keeps pins: what the start has found stays.
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
	crashes := child.NewCrashes()
	before := look(o.Config)
	s, err := start(ctx, &o, cfg, crashes)
	for died := 1; err != nil && crashes.Count() == died && died < child.MaxLaunchCrashes && ctx.Err() == nil; died++ {
		o.Logger.Warn("the plugin died in a verb of an RDMA device, and is started again", "error", err)
		s, err = start(ctx, &o, cfg, crashes)
	}
	if err != nil {
		if l, any := before.leavings(); any && !errors.Is(err, dataplane.ErrInUse) { // then it is the other instance's
			err = errors.Join(err, release(&o, l, before.instance))
		}
		return nil, err
	}
	c := &Client{
		opts: o, log: o.Logger, crashes: crashes, base: cfg,
		finished: make(chan struct{}), op: make(chan struct{}, 1),
		cur: s, info: s.info, receivers: make(map[*receiver]struct{}), added: make(map[string]bool), words: make(map[string]bool),
	}
	c.flows.add(cfg.Flows, encoded)
	cfg.Flows, c.opts.Config.Flows = nil, nil // c.flows has them
	c.life, c.end = context.WithCancel(context.Background())
	c.patience, c.hurry = context.WithCancelCause(context.Background())
	close(s.ready)
	go c.supervise(s)
	return c, nil
}
