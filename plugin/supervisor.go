package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/hosted"
	"github.com/flowtally/flowtally/plugin/internal/child"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// objectPlugin is the Object of events and conditions about the plugin itself.
const objectPlugin = "plugin"

// supervise keeps a plugin running until Close. After Launch, only this goroutine starts and ends processes, so there is
// never more than one.
func (c *Client) supervise(s *session) {
	defer close(c.finished)
	pause := backoff{min: c.opts.RestartMin, max: c.opts.RestartMax}
	for s != nil {
		why, ended := c.awaitEnd(s)
		if !ended { // Close was called
			c.result = c.finish(s)
			<-s.ready
			return
		}

		c.crashes.Add(s.child)
		pause.lived(time.Since(s.started))
		c.reap(s)
		<-s.ready // cameUp must not make s the current session after wentDown
		c.wentDown(why)
		s = c.restart(&pause, why)
	}

	// Close was called while the plugin was down.
	ctx, cancel := context.WithTimeout(c.patience, c.opts.CloseTimeout)
	defer cancel()
	c.result = c.cleanUp(ctx)
}

// awaitEnd waits for the end of the plugin and returns the cause. It kills a plugin that fails health checks. ended is
// false if Close was called first.
func (c *Client) awaitEnd(s *session) (why string, ended bool) {
	ctx, cancel := context.WithCancel(c.life)
	defer cancel()

	hung := make(chan struct{})
	if c.opts.Watchdog > 0 {
		go func() {
			if pulse(ctx, s.health, c.opts.Watchdog, c.logSilence(s, c.opts.Watchdog)) {
				close(hung)
			}
		}()
	}

	select {
	case <-c.life.Done():
		return "", false
	case <-s.child.Exited:
		return s.child.Cause, true
	case <-hung:
		_ = s.child.Kill(ctx)
		<-s.child.Exited
		return fmt.Sprintf("no reply to health checks for %v, killed", c.opts.Watchdog), true
	}
}

// logSilence returns a callback for pulse that warns about the silence.
func (c *Client) logSilence(s *session, limit time.Duration) func() {
	return func() {
		c.log.Warn("plugin does not reply to a health check: it is killed unless it does", "pid", s.info.PID, "within", limit.String())
	}
}

// pulse checks the health of the plugin every limit/6. It returns true after no check has succeeded for limit, and false
// when ctx ends. It calls silent once per silence, when a check has waited for limit/15 or failed.
func pulse(ctx context.Context, health grpc_health_v1.HealthClient, limit time.Duration, silent func()) bool {
	tick := time.NewTicker(max(limit/6, time.Millisecond))
	defer tick.Stop()

	lastReply := time.Now()
	report := new(sync.Once) // replaced after each good reply
	for time.Since(lastReply) < limit {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}

		once := report
		slow := time.AfterFunc(limit/15, func() { once.Do(silent) })
		call, cancel := context.WithTimeout(ctx, limit)
		_, err := health.Check(call, &grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName})
		cancel()
		slow.Stop()

		switch {
		case err == nil:
			lastReply = time.Now()
			report = new(sync.Once)
		case ctx.Err() == nil:
			once.Do(silent)
		}
	}
	return ctx.Err() == nil
}

// wentDown makes calls return ErrUnavailable until the next session.
func (c *Client) wentDown(why string) {
	c.log.Warn("plugin ended", "cause", why)
	now := time.Now()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = nil
	c.down = dataplane.Condition{
		Code:     dataplane.CodePluginRestarting,
		Severity: dataplane.High,
		Object:   objectPlugin,
		Since:    now,
		Text:     "the plugin process ended (" + why + "); values in the mirror do not change until it runs again",
		Fix:      "it is started again by itself; the log above has its last lines",
	}
	c.broadcast(dataplane.Event{
		Time:   now,
		Kind:   dataplane.ConditionRaised,
		Code:   c.down.Code,
		Object: objectPlugin,
		Text:   string(c.down.Code) + ": " + c.down.Text,
	})
}

// reap frees go-plugin's resources of a dead process in the background, because a child of the plugin may keep the pipes
// open for a while. Close waits for it.
func (c *Client) reap(s *session) { c.reapers.Go(s.kill) }

// restart starts plugins until one runs with the current flows. It returns nil after Close.
func (c *Client) restart(pause *backoff, why string) *session {
	cfg, configErr := c.config()
	for attempt := 1; ; attempt++ {
		wait := time.NewTimer(pause.next())
		select {
		case <-wait.C:
		case <-c.life.Done():
			wait.Stop()
			return nil
		}

		var s *session
		err := configErr
		if err == nil {
			s, err = start(c.life, &c.opts, cfg, c.crashes, child.RestartEnv+"=1")
		}
		if err == nil {
			go c.cameUp(s, why, attempt) // s may hang in there, so let awaitEnd watch it already
			return s
		}
		if c.life.Err() != nil {
			return nil
		}

		c.log.Error("restarting the plugin", "attempt", attempt, "error", err)
		c.mu.Lock()
		c.down.Text = fmt.Sprintf("the plugin process ended (%s) and does not start: attempt %d: %v", why, attempt, err)
		c.mu.Unlock()
	}
}

// cameUp attaches all receivers of events to the new session, and only then lets calls use it. So no receiver misses the
// event of a change. It returns soon after s ends.
func (c *Client) cameUp(s *session, why string, attempts int) {
	defer close(s.ready)
	for {
		c.mu.Lock()
		var pending []*receiver
		for r := range c.receivers {
			if r.on != s {
				r.on = s
				pending = append(pending, r)
			}
		}
		if len(pending) == 0 {
			c.arrived(s, why)
			c.mu.Unlock()
			break
		}
		c.mu.Unlock()
		for _, r := range pending {
			// On error either s has died, which supervise notices, or r has ended.
			_ = c.attach(r, s)
		}
	}
	c.log.Info("plugin restarted", "pid", s.info.PID, "attempts", attempts)
}

// arrived makes s the current session and announces it. The caller holds c.mu over both, so that nobody sees the new session
// before its events.
func (c *Client) arrived(s *session, why string) {
	c.current = s
	c.info = s.info
	c.restarts++

	now := time.Now()
	c.broadcast(dataplane.Event{
		Time:   now,
		Kind:   dataplane.PluginRestarted,
		Object: objectPlugin,
		Text:   fmt.Sprintf("the plugin ended (%s) and runs again as process %d", why, s.info.PID),
	})
	c.broadcast(dataplane.Event{
		Time:   now,
		Kind:   dataplane.ConditionGone,
		Code:   dataplane.CodePluginRestarting,
		Object: objectPlugin,
		Text:   string(dataplane.CodePluginRestarting),
	})
}

// finish closes the instance and then ends the process. If the process fails health checks, for example because of SIGSTOP,
// finish kills it after a third of CloseTimeout and leaves the rest of the time to cleanUp.
func (c *Client) finish(s *session) error {
	ctx, cancel := context.WithTimeout(c.patience, c.opts.CloseTimeout)
	defer cancel()
	closing, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go func() {
		// In the worst case the process stops just after a reply. Then pulse takes limit/6 until the next check, and
		// limit for it: less than a third of CloseTimeout.
		limit := c.opts.CloseTimeout / 4
		if pulse(closing, s.health, limit, c.logSilence(s, limit)) {
			giveUp(errSilent)
		}
	}()

	began := time.Now()
	err := s.svc.shutdown(closing)
	if cause := context.Cause(closing); err != nil && cause != nil {
		err = cause
		c.log.Error("plugin does not close, killed", "pid", s.info.PID, "after", time.Since(began).Round(time.Millisecond), "cause", cause)
		_ = s.child.Kill(ctx)
	}
	s.kill()

	switch {
	case errors.Is(err, dataplane.ErrUnavailable):
		c.log.Warn("plugin ended while it was being closed", "cause", s.child.Cause)
		return c.cleanUp(ctx)
	case errors.Is(err, errSilent):
		return c.cleanUp(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return errors.Join(fmt.Errorf("closing: the plugin did not close within %v and was killed: %w", c.opts.CloseTimeout, err), c.releasePins())
	case errors.Is(err, errKilled):
		return errors.Join(fmt.Errorf("closing: %w", err), c.releasePins())
	case err != nil: // the instance did not close, for example because a system call hangs
		return errors.Join(err, c.releasePins())
	}
	return nil
}

var (
	errSilent = errors.New("it fails health checks")
	errKilled = errors.New("the plugin was killed before it had closed")
)

// cleanUp is Close for a dead plugin, whose programs are still attached and may drop packets. Unless the configuration keeps
// pins, cleanUp starts one more plugin, which adopts programs and counts, and closes it. If that fails or takes too long,
// it detaches the programs by the paths of their pins, and the last counts are lost.
func (c *Client) cleanUp(ctx context.Context) error {
	if c.keepsPins() {
		return nil
	}
	err := c.startAndClose(ctx)
	if err == nil {
		return nil
	}

	c.log.Warn("the plugin is down and does not start: its programs are detached without it", "error", err)
	err = fmt.Errorf("closing: the plugin is down, so the counts since its last cycle are lost: %w: %w", dataplane.ErrUnavailable, err)
	return errors.Join(err, c.releasePins())
}

// startAndClose starts a plugin just to close its instance.
func (c *Client) startAndClose(ctx context.Context) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	s, err := start(ctx, &c.opts, cfg, c.crashes, child.RestartEnv+"=1")
	if err != nil {
		return err
	}
	err = s.svc.shutdown(ctx)
	s.kill()
	return err
}

// releasePins detaches the programs of a dead plugin by the paths of their pins, unless the configuration keeps pins.
func (c *Client) releasePins() error {
	pins := c.opts.Config.PinDir()
	if c.keepsPins() || !there(pins) {
		return nil
	}
	return release(&c.opts, hosted.Leavings{Pins: pins}, c.opts.Config.Instance)
}

// keepsPins returns the current setting, which SetFlows can change.
func (c *Client) keepsPins() bool {
	c.changing <- struct{}{}
	defer c.endChange()
	return c.base.GetXdp().GetKeepPins()
}

// config returns the configuration with the current flows, for the next process. It waits for a change under way, which
// fails soon because the process is dead.
func (c *Client) config() (*pluginv1.Config, error) {
	c.changing <- struct{}{}
	defer c.endChange()

	cfg := proto.CloneOf(c.base)
	c.keepWords(cfg)
	var err error
	cfg.Flows, err = c.flows.messages()
	return cfg, err
}
