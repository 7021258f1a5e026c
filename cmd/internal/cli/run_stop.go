package cli

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/plugin"
)

// errStopped is the error of an instance that a signal ended before it counted.
var errStopped = errors.New("a signal ended the start")

// sameRequest is how long after the first signal another one is the same request: timeout(1)
// sends a signal to the process and then to the group of both, within a millisecond.
const sameRequest = time.Second

// secondRequest returns the first of signals that comes longer than within after the first one,
// or nil when over is closed before.
func secondRequest(signals <-chan os.Signal, over <-chan struct{}, within time.Duration) os.Signal {
	var first time.Time
	for {
		select {
		case s := <-signals:
			switch {
			case first.IsZero():
				first = time.Now()
			case time.Since(first) > within:
				return s
			}
		case <-over:
			return nil
		}
	}
}

// ending ends an instance at the second request to end, whatever it is doing: starting, running or closing.
type ending struct {
	env      *Env
	cfg      dataplane.Config // as it was started
	embedded bool
	exit     engine.Exit // of an embedded instance
	signals  <-chan os.Signal
	over     <-chan struct{} // closed when the instance has ended

	mu  sync.Mutex
	svc dataplane.Service // nil while it starts
}

// running hands over the started instance.
func (e *ending) running(svc dataplane.Service) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.svc = svc
}

// atOnce waits for the second request. A plugin is killed; a start of it was killed by the first request. An instance in
// this process cannot be, so the process ends, without its programs.
func (e *ending) atOnce() {
	last := secondRequest(e.signals, e.over, sameRequest)
	if last == nil {
		return
	}
	e.mu.Lock()
	svc := e.svc
	e.mu.Unlock()
	if c, ok := svc.(*plugin.Client); ok {
		e.env.Logger.Warn("second signal: ending at once, without a last cycle", "signal", last)
		_ = c.Kill() // which Close returns too
		return
	}
	if !e.embedded {
		e.env.Logger.Warn("second signal: the plugin was killed at the first, and what it left is being removed", "signal", last)
		return
	}
	e.env.Logger.Warn("second signal: ending at once, without a last cycle", "signal", last)
	err := fmt.Errorf("ending instance %s at once: a second signal: it published no last cycle", e.cfg.Instance)
	if svc == nil {
		err = fmt.Errorf("starting instance %s: %w, and a second one this process; %s", e.cfg.Instance, errStopped, e.left(nil))
	}
	if left := e.exit.Release(svc != nil); left != nil {
		err = withHint(fmt.Errorf("ending instance %s at once: its programs stay attached: %w", e.cfg.Instance, left), "flowtally clean --instance %s", e.cfg.Instance)
	}
	os.Exit(report(e.env.Stderr, err, e.env.line))
}

// left says what a stopped start has left. err is the error of the start.
func (e *ending) left(err error) string {
	switch {
	case errors.Is(err, plugin.ErrLeft):
		return err.Error()
	case e.cfg.XDP.KeepPins:
		return "what was pinned before it stays, as xdp.keep_pins asks for"
	}
	return "nothing of it is attached or pinned"
}
