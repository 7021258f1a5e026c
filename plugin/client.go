package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin/internal/child"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// Client is an instance in a plugin process that is supervised: when the process ends, it is started again with the
// flows of that moment. Client implements [dataplane.Service], and all methods may be called from any goroutine.
// docs/plugin.md describes a restart as a caller sees it.
type Client struct {
	opts    Options // without Config.Flows
	log     *slog.Logger
	crashes *child.Crashes

	life     context.Context // ends when Close is called
	end      context.CancelFunc
	patience context.Context // of Close; ends when Kill is called
	hurry    context.CancelCauseFunc

	finished chan struct{} // closed when supervise has returned, and result is set
	result   error
	reapers  sync.WaitGroup

	// changing is full while a change of the flows is under way: until its outcome is known and noted, which may take
	// longer than the caller waits. Who fills it may use the fields below, which the next process is started from.
	changing chan struct{}
	flows    flowList
	added    map[string]bool  // flows that AddFlows has added, by name; a new process does not know them from the others
	base     *pluginv1.Config // without flows
	words    map[string]bool  // that calls have reserved (true) or released, by name

	mu        sync.Mutex
	current   *session // nil while the plugin is down
	info      dataplane.Info
	down      dataplane.Condition // while current is nil
	restarts  int
	receivers map[*receiver]struct{}
}

var _ dataplane.Service = (*Client)(nil)

// Info implements dataplane.Service. While the plugin is down it returns the last information, with a PID of 0: the
// mirror is still at its path.
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

// Restarts counts how often the plugin was started again.
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

// Placements implements dataplane.Service. It waits for no change.
func (c *Client) Placements(ctx context.Context, names ...string) ([]dataplane.Placement, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	placed, err := s.svc.Placements(ctx, names...)
	return placed, c.sessionError(ctx, s, err)
}

// Conditions implements dataplane.Service. While the plugin is down the one condition is
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

// Close implements dataplane.Service: it ends the instance in order, then the process. Calls under way return
// ErrClosed.
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

// Kill is Close without an orderly end: the process is killed, and its programs may stay attached until the next
// instance of this name adopts them. It also hurries a Close under way.
func (c *Client) Kill() error {
	c.hurry(errKilled)
	return c.Close()
}

// session returns the running session, or the reason for its absence.
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

// sessionError returns the error of a call on s. If the session has ended, that is the cause of every error that the
// instance did not return itself.
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
	case <-time.After(50 * time.Millisecond): // the connection ends before the process does
		return err
	}
}

func isSentinel(err error) bool {
	return slices.ContainsFunc(sentinels, func(s sentinel) bool { return errors.Is(err, s.err) })
}

// config returns the configuration, with the flows of now, for the next process. It waits for a change under way, which
// ends soon when the process is dead.
func (c *Client) config() (*pluginv1.Config, error) {
	c.changing <- struct{}{}
	defer c.endChange()

	cfg := proto.CloneOf(c.base)
	c.keepWords(cfg)
	var err error
	cfg.Flows, err = c.flows.messages()
	return cfg, err
}
