package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/plugin"
)

// errStopped is the error of an instance that a signal ended before it counted.
var errStopped = errors.New("a signal ended the start")

// sameRequest is how long after the first signal another one is the same request: timeout(1) signals the process, and
// within a millisecond the group that the process is in.
const sameRequest = time.Second

// secondRequest returns the first signal that comes more than within after the first one, or nil once over is closed.
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

// emergencyExit ends an instance at the second request to end, whatever it is doing: starting, running or closing. The
// first request ends Env.Context.
type emergencyExit struct {
	env      *Env
	cfg      dataplane.Config // as it was started
	embedded bool
	engine   engine.Exit // of an embedded instance
	signals  chan os.Signal
	over     chan struct{} // closed when the instance has ended

	mu  sync.Mutex
	svc dataplane.Service // nil while the instance starts
}

// newEmergencyExit waits for the signals from now on. Its owner closes it when the instance has ended.
func newEmergencyExit(env *Env, cfg dataplane.Config, embedded bool, signals []os.Signal) *emergencyExit {
	e := &emergencyExit{
		env:      env,
		cfg:      cfg,
		embedded: embedded,
		signals:  make(chan os.Signal, 2),
		over:     make(chan struct{}),
	}
	signal.Notify(e.signals, signals...)
	e.engine = engine.PrepareExit(cfg)
	go e.wait()
	return e
}

// close gives the signals up.
func (e *emergencyExit) close() {
	close(e.over)
	signal.Stop(e.signals)
}

// started hands over the started instance.
func (e *emergencyExit) started(svc dataplane.Service) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.svc = svc
}

// wait waits for the second request, and then ends the instance. A plugin is killed; one that was starting was killed
// by the first request. An instance in this process cannot be killed alone: the process ends, without its programs.
func (e *emergencyExit) wait() {
	last := secondRequest(e.signals, e.over, sameRequest)
	if last == nil {
		return
	}

	e.mu.Lock()
	svc := e.svc
	e.mu.Unlock()
	if c, ok := svc.(*plugin.Client); ok {
		e.env.Logger.Warn("second signal: ending at once, without a last cycle", "signal", last)
		_ = c.Kill() // Close returns the error too
		return
	}
	if !e.embedded {
		e.env.Logger.Warn("second signal: the plugin was killed at the first, and what it left is being removed", "signal", last)
		return
	}

	e.env.Logger.Warn("second signal: ending at once, without a last cycle", "signal", last)
	os.Exit(report(e.env.Stderr, e.release(svc != nil), e.env.line))
}

// release takes the programs of an embedded instance off their hooks, and returns the error that this process ends
// with.
func (e *emergencyExit) release(started bool) error {
	if left := e.engine.Release(started); left != nil {
		return withHint(fmt.Errorf("ending instance %s at once: its programs stay attached: %w", e.cfg.Instance, left), "flowtally clean --instance %s", e.cfg.Instance)
	}
	if !started {
		return fmt.Errorf("starting instance %s: %w, and a second one this process; %s", e.cfg.Instance, errStopped, e.left(nil))
	}
	return fmt.Errorf("ending instance %s at once: a second signal: it published no last cycle", e.cfg.Instance)
}

// left tells what a stopped start has left. err is the error of the start.
func (e *emergencyExit) left(err error) string {
	switch {
	case errors.Is(err, plugin.ErrLeft):
		return err.Error()
	case e.cfg.XDP.KeepPins:
		return "what was pinned before it stays, as xdp.keep_pins asks for"
	}
	return "nothing of it is attached or pinned"
}
