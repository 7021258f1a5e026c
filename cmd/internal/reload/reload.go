// Package reload changes a running instance to match its configuration file.
//
// It hands the whole configuration to SetFlows of [dataplane.Service], so either everything changes or nothing does.
// Flows added at run time stay, unless the caller asks to prune them.
package reload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

const (
	// settled is how long a file must be unchanged before we read it. While an editor writes in place, the file is
	// incomplete for a moment, and an incomplete file may be valid: we would remove the flows missing from it.
	settled = 250 * time.Millisecond
	// patience is how long to wait for a file to settle.
	patience = 5 * time.Second
)

// Load reads a configuration file. It waits until the file, and all files and directories that it includes, have been
// unchanged for a moment, and it reads again if one changes meanwhile.
func Load(ctx context.Context, path string) (dataplane.Config, error) {
	return load(ctx, path, settled, patience)
}

// Again is Load for the reload of a running instance. It returns an error for a FIFO, because opening it would block until
// a writer comes, and block later reloads with it.
func Again(ctx context.Context, path string) (dataplane.Config, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return dataplane.Config{}, fmt.Errorf("reading configuration: %s: not a regular file, which a reload cannot read", path)
	}
	return Load(ctx, path)
}

func load(ctx context.Context, path string, settled, patience time.Duration) (dataplane.Config, error) {
	for end := time.Now().Add(patience); ; {
		before, err := os.Stat(path)
		if err != nil || !before.Mode().IsRegular() { // read returns the error, or reads a pipe
			cfg, _, err := read(ctx, path)
			return cfg, err
		}

		age := time.Since(before.ModTime())
		if age >= settled || age < 0 { // a time in the future comes from another clock, and says nothing
			start := time.Now()
			cfg, paths, loadErr := read(ctx, path)
			if isAsBefore(path, before) && !changedSince(paths, start.Add(-settled)) {
				return cfg, loadErr
			}
		}

		if time.Now().After(end) {
			return dataplane.Config{}, fmt.Errorf("reading configuration: %s: it changes while it is read: write another file and rename it to this one", path)
		}
		select {
		case <-ctx.Done():
			return dataplane.Config{}, fmt.Errorf("reading configuration: %s: %w", path, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// isAsBefore reports whether path is still the same file, of the same size and modification time.
func isAsBefore(path string, before os.FileInfo) bool {
	after, err := os.Stat(path)
	return err == nil && os.SameFile(before, after) && before.Size() == after.Size() && before.ModTime().Equal(after.ModTime())
}

// changedSince reports whether any of the files and directories has changed since then, or is gone. It ignores times in
// the future, which come from another clock.
func changedSince(paths []string, then time.Time) bool {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || info.ModTime().After(then) && info.ModTime().Before(time.Now()) {
			return true
		}
	}
	return false
}

// read is configs.LoadFiles that ends with ctx. A goroutine blocked on a FIFO stays behind then.
func read(ctx context.Context, path string) (cfg dataplane.Config, paths []string, err error) {
	type loaded struct {
		cfg   dataplane.Config
		paths []string
		err   error
	}
	done := make(chan loaded, 1)
	go func() {
		cfg, paths, err := configs.LoadFiles(path)
		done <- loaded{cfg, paths, err}
	}()

	select {
	case l := <-done:
		return l.cfg, l.paths, l.err
	case <-ctx.Done():
		return cfg, nil, fmt.Errorf("reading configuration: %s: %w", path, ctx.Err())
	}
}

// Options of Apply. The zero value keeps flows added at run time.
type Options struct {
	DryRun bool // change nothing
	Prune  bool // also remove flows that were added at run time and are not in the configuration
}

// Apply changes a running instance to match the configuration, and returns the difference. A dry run also computes the
// cost of a packet.
func Apply(ctx context.Context, svc dataplane.Service, cfg dataplane.Config, o Options) (dataplane.Difference, error) {
	settings := cfg
	settings.Flows = nil
	return svc.SetFlows(ctx, cfg.Flows, dataplane.SetOptions{
		Config:    &settings,
		KeepAdded: !o.Prune,
		DryRun:    o.DryRun,
		Cost:      o.DryRun,
	})
}

// Loop applies the configuration file at each signal.
type Loop struct {
	Signals  <-chan os.Signal // of capacity 1, so any number of signals during a reload cause one more reload
	Load     func(context.Context) (dataplane.Config, error)
	Service  dataplane.Service
	Logger   *slog.Logger
	Notify   func(state string) error // tells the service manager; see sd_notify(3)
	Instance string
}

// Run reloads until ctx ends.
func (l *Loop) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.Signals:
		}

		l.notify(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", shm.Now()/int64(time.Microsecond)))
		status := "reloaded"
		if err := l.reload(ctx); err != nil {
			if ctx.Err() != nil {
				return // the instance stops
			}
			status = "the last reload was refused, and the instance counts as before it"
			l.report(err)
		}
		l.notify("READY=1\nSTATUS=" + status)
	}
}

// reload applies the configuration file once.
func (l *Loop) reload(ctx context.Context) error {
	cfg, err := l.Load(ctx)
	if err != nil {
		return err
	}
	d, err := Apply(ctx, l.Service, cfg, Options{})
	if err != nil {
		return err
	}
	l.Logger.Info("reloaded",
		"instance", l.Instance,
		"added", len(d.Added),
		"removed", len(d.Removed),
		"changed", changed(d),
		"settings", len(d.Settings),
		"unchanged", d.Unchanged,
	)
	return nil
}

// report logs why a reload failed, with a record for each mistake in the file.
func (l *Loop) report(err error) {
	const message = "reloading: the instance counts as before"
	mistakes := (*configs.Error)(nil)
	if !errors.As(err, &mistakes) {
		l.Logger.Error(message, "instance", l.Instance, "err", err)
		return
	}
	for _, p := range mistakes.Problems {
		l.Logger.Error(message,
			"instance", l.Instance,
			"file", p.File,
			"line", p.Line,
			"column", p.Col,
			"err", p.Msg,
			"try", strings.ReplaceAll(p.Suggestion, "\n", " "),
		)
	}
}

func (l *Loop) notify(state string) {
	if err := l.Notify(state); err != nil {
		l.Logger.Warn("telling the service manager", "err", err)
	}
}
