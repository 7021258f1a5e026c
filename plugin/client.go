package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin/internal/child"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// Client is an instance in a plugin. If the plugin dies, Client starts a new one with the current flows; docs/plugin.md
// describes what callers see of that. All methods may be called from any goroutine.
type Client struct {
	opts    Options // without Config.Flows
	log     *slog.Logger
	crashes *child.Crashes

	life     context.Context // canceled by Close
	end      context.CancelFunc
	patience context.Context // of Close, canceled by Kill
	hurry    context.CancelCauseFunc

	finished chan struct{} // closed when supervise returns; result is valid afterwards
	result   error
	reapers  sync.WaitGroup

	// changing is a lock, a channel of capacity 1 that is full while a change is under way. The change holds it until its
	// outcome is known and noted below, which may be after its caller has left. The fields below are what the next
	// process is started with.
	changing chan struct{}
	flows    flowList
	added    map[string]bool  // flows that came by AddFlows, for SetOptions.KeepAdded; a new process cannot tell them apart
	base     *pluginv1.Config // without flows
	words    map[string]bool  // words reserved (true) or released (false) by calls

	mu        sync.Mutex
	current   *session // nil while the plugin is down
	info      dataplane.Info
	down      dataplane.Condition // while current is nil
	restarts  int
	receivers map[*receiver]struct{}
}

var _ dataplane.Service = (*Client)(nil)

// Info implements dataplane.Service. While the plugin is down, it returns the last known information with a PID of 0, so
// that readers still find the mirror.
func (c *Client) Info(ctx context.Context) (dataplane.Info, error) {
	if err := ctx.Err(); err != nil {
		return dataplane.Info{}, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return dataplane.Info{}, dataplane.ErrClosed
	}

	info := c.info
	info.File = c.opts.File
	if c.current == nil {
		info.PID = 0
	}
	return info, nil
}

// Restarts returns how often the plugin was started again.
func (c *Client) Restarts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restarts
}

// Interfaces implements dataplane.Service.
func (c *Client) Interfaces(ctx context.Context) ([]dataplane.Interface, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	list, err := s.svc.Interfaces(ctx)
	return list, c.sessionError(ctx, s, err)
}

// Placements implements dataplane.Service. It does not wait for a change under way.
func (c *Client) Placements(ctx context.Context, names ...string) ([]dataplane.Placement, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	placed, err := s.svc.Placements(ctx, names...)
	return placed, c.sessionError(ctx, s, err)
}

// Conditions implements dataplane.Service. While the plugin is down, the only condition is
// [dataplane.CodePluginRestarting].
func (c *Client) Conditions(ctx context.Context) ([]dataplane.Condition, error) {
	c.mu.Lock()
	s, down := c.current, c.down
	c.mu.Unlock()

	switch {
	case c.life.Err() != nil:
		return nil, dataplane.ErrClosed
	case s == nil:
		return []dataplane.Condition{down}, nil
	}
	conditions, err := s.svc.Conditions(ctx)
	return conditions, c.sessionError(ctx, s, err)
}

// Close implements dataplane.Service. It closes the instance and then ends the plugin. Calls under way return
// [dataplane.ErrClosed].
func (c *Client) Close() error {
	c.end()
	<-c.finished
	c.reapers.Wait()

	c.mu.Lock()
	open := c.receivers
	c.receivers = nil
	c.mu.Unlock()
	for r := range open {
		r.q.Close()
	}
	return c.result
}

// Kill is like Close, but ends the plugin by SIGKILL, for hosts that cannot wait. Programs may stay attached until the next
// instance of this name adopts them. Kill also hurries a Close under way.
func (c *Client) Kill() error {
	c.hurry(errKilled)
	return c.Close()
}

// session returns the current session, or the reason why there is none.
func (c *Client) session() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.life.Err() != nil:
		return nil, dataplane.ErrClosed
	case c.current == nil:
		return nil, fmt.Errorf("%w: %s", dataplane.ErrUnavailable, c.down.Text)
	}
	return c.current, nil
}

// sessionError returns the error of a call on s, given the error of the connection. If the plugin has died, that explains
// every error except those of the instance itself.
func (c *Client) sessionError(ctx context.Context, s *session, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if c.life.Err() != nil {
		return dataplane.ErrClosed
	}
	if !errors.Is(err, dataplane.ErrUnavailable) && isSentinel(err) {
		return err
	}

	select {
	case <-s.child.Exited:
		return fmt.Errorf("%w: the plugin process ended (%s) and is being restarted", dataplane.ErrUnavailable, s.child.Cause)
	case <-time.After(50 * time.Millisecond): // a dying process loses its connection first
		return err
	}
}

func isSentinel(err error) bool {
	return slices.ContainsFunc(sentinels, func(s sentinel) bool { return errors.Is(err, s.err) })
}
