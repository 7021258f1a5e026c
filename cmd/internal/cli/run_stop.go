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

// errStopped: a signal ended the instance before it counted.
var errStopped = errors.New("a signal ended the start")

// sameRequest is how long after the first signal another one does not count as a second request to end. timeout(1) sends
// its signal twice within a millisecond: to the process, and to its process group.
const sameRequest = time.Second

// secondRequest waits for a signal that comes later than within after the first one, and returns it. It returns nil once
// over is closed.
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

// emergencyExit ends an instance at the second request to end, even if it hangs while starting, running or closing. The
// first request ends Env.Context, and is handled in order.
type emergencyExit struct {
	env      *Env
	cfg      dataplane.Config // of the start
	embedded bool
	engine   engine.Exit // of an embedded instance
	signals  chan os.Signal
	over     chan struct{} // closed when the instance has ended

	mu  sync.Mutex
	svc dataplane.Service // nil while the instance starts
}

// newEmergencyExit starts watching the signals. Callers must close it when the instance has ended.
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

// close stops watching the signals.
func (e *emergencyExit) close() {
	close(e.over)
	signal.Stop(e.signals)
}

// started tells that the start has succeeded: from now on there is an instance to end.
func (e *emergencyExit) started(svc dataplane.Service) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.svc = svc
}

// wait waits for the second request, and then ends the instance. It kills a running plugin. The first request has already
// killed a plugin that was starting. An embedded instance cannot be killed alone, so wait detaches its programs and ends
// the whole process.
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

// release takes the programs of an embedded instance off their hooks, and returns the error with which this process ends.
func (e *emergencyExit) release(started bool) error {
	if left := e.engine.Release(started); left != nil {
		return withHint(fmt.Errorf("ending instance %s at once: its programs stay attached: %w", e.cfg.Instance, left), "flowtally clean --instance %s", e.cfg.Instance)
	}
	if !started {
		return fmt.Errorf("starting instance %s: %w, and a second one this process; %s", e.cfg.Instance, errStopped, e.left(nil))
	}
	return fmt.Errorf("ending instance %s at once: a second signal: it published no last cycle", e.cfg.Instance)
}

// left says what a start ended by a signal has left on the host. err is the error of the start.
func (e *emergencyExit) left(err error) string {
	switch {
	case errors.Is(err, plugin.ErrLeft):
		return err.Error()
	case e.cfg.XDP.KeepPins:
		return "what was pinned before it stays, as xdp.keep_pins asks for"
	}
	return "nothing of it is attached or pinned"
}
