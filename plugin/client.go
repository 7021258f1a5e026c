package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/plugin/internal/child"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// Client is an instance in a plugin process that is supervised: when it ends, it is started again with the flows of
// that moment. It satisfies dataplane.Service, and all methods may be called from any goroutine. docs/plugin.md
// describes a restart as a caller sees it.
type Client struct {
	opts    Options
	log     *slog.Logger
	crashes *child.Crashes

	life     context.Context // ends when Close is called
	end      context.CancelFunc
	patience context.Context // of Close; ends when Kill is called
	hurry    context.CancelCauseFunc
	finished chan struct{} // closed when supervise returned; result is set then
	result   error
	reapers  sync.WaitGroup

	// op is held over a change of flows until its outcome is known and noted, which may
	// be longer than the caller waits. It guards flows, added and base.
	op    chan struct{}
	flows flowList
	added map[string]bool  // flows that AddFlows has added, by name; a new process does not know them from the others
	base  *pluginv1.Config // without flows
	words map[string]bool  // that calls have reserved (true) or released, by name

	mu        sync.Mutex
	cur       *session // nil while the plugin is down
	info      dataplane.Info
	down      dataplane.Condition // while cur is nil
	restarts  int
	receivers map[*receiver]struct{}
}

var _ dataplane.Service = (*Client)(nil)

// config is the configuration with the flows of now. It waits for a change
// under way, which ends soon when the process is dead.
func (c *Client) config() (*pluginv1.Config, error) {
	c.op <- struct{}{}
	defer func() { <-c.op }()
	cfg := proto.CloneOf(c.base)
	c.keepWords(cfg)
	var err error
	cfg.Flows, err = c.flows.messages()
	return cfg, err
}

// session returns the running session, or the reason for its absence.
func (c *Client) session() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.life.Err() != nil:
		return nil, dataplane.ErrClosed
	case c.cur == nil:
		return nil, fmt.Errorf("%w: %s", dataplane.ErrUnavailable, c.down.Text)
	}
	return c.cur, nil
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
	if !errors.Is(err, dataplane.ErrUnavailable) && slices.ContainsFunc(sentinels, func(e sentinel) bool { return errors.Is(err, e.err) }) {
		return err
	}
	select {
	case <-s.child.Exited:
		return fmt.Errorf("%w: the plugin process ended (%s) and is being restarted", dataplane.ErrUnavailable, s.child.Cause)
	case <-time.After(50 * time.Millisecond): // the connection ends before the process does
		return err
	}
}

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
	if c.cur == nil {
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

// AddFlows implements dataplane.Service.
func (c *Client) AddFlows(ctx context.Context, flows ...flow.Flow) ([]dataplane.Placement, error) {
	msg, err := flowsToProto(flows)
	if err != nil {
		return nil, fmt.Errorf("adding flows: %w", err)
	}
	encoded, err := encodeFlows(msg)
	if err != nil {
		return nil, fmt.Errorf("adding flows: %w", err)
	}
	var placed []*pluginv1.Placement
	err = c.change(ctx, change{
		rpc: func(ctx context.Context, s *session) (err error) {
			placed, err = s.svc.addFlows(ctx, 0, msg)
			return err
		},
		note: func() {
			c.flows.add(msg, encoded)
			for _, f := range msg {
				c.added[f.Name] = true
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return placementsFromProto(placed)
}

// SetFlows implements dataplane.Service. After a restart the plugin has the flows from before the call or from after it.
func (c *Client) SetFlows(ctx context.Context, flows []flow.Flow, opts dataplane.SetOptions) (dataplane.Difference, error) {
	req, err := setToProto(flows, opts)
	if err != nil {
		return dataplane.Difference{}, err
	}
	req.Renames = maps.Clone(req.Renames) // the caller's
	return c.relaySet(ctx, req)
}

// relaySet implements relay.
func (c *Client) relaySet(ctx context.Context, req *pluginv1.SetFlowsRequest) (d dataplane.Difference, err error) {
	if req.Config != nil {
		req.Config.Flows = nil
	}
	if req.DryRun {
		s, err := c.turn(ctx)
		if err != nil {
			return d, err
		}
		c.keepAdded(req)
		c.keepWords(req.Config)
		err = c.leaveOut(req)
		<-c.op
		if err == nil {
			d, err = s.svc.setFlows(ctx, 0, req)
		}
		return d, c.sessionError(ctx, s, err)
	}
	var got dataplane.Difference
	var encoded []string
	err = c.change(ctx, change{
		rpc: func(ctx context.Context, s *session) (err error) {
			c.keepAdded(req)
			c.keepWords(req.Config)
			if err = c.leaveOut(req); err != nil {
				return err
			}
			if encoded, err = encodeFlows(req.Flows); err != nil {
				return fmt.Errorf("setting flows: %w", err)
			}
			got, err = s.svc.setFlows(ctx, 0, req)
			return err
		},
		note: func() {
			c.flows.set(req.Flows, encoded, req.KeepOthers, req.Renames, req.Keep)
			for _, f := range req.Flows {
				delete(c.added, f.Name)
			}
			maps.DeleteFunc(c.added, func(name string, _ bool) bool { return !c.flows.has(name) })
			if req.Config != nil {
				c.base = req.Config
			}
		},
	})
	if err != nil {
		return d, err // got may be written to still
	}
	return got, nil
}

// leaveOut makes a request one of the flows that it changes, beside all others, where that has the same outcome: then
// the plugin reads one flow of 100,000. The caller holds op.
func (c *Client) leaveOut(req *pluginv1.SetFlowsRequest) error {
	// A plugin that goes on without refused flows tries those again that it is given.
	if req.KeepOthers || len(req.Renames) > 0 || c.base.GetStart() == string(dataplane.StartDegraded) {
		return nil
	}
	// A flow that AddFlows has added is not added any more once it was given.
	if slices.ContainsFunc(req.Flows, func(f *pluginv1.Flow) bool { return c.added[f.Name] }) {
		return nil
	}
	changed, inPlace, err := c.flows.changed(req.Flows, req.Keep)
	if err != nil {
		return fmt.Errorf("setting flows: %w", err)
	}
	if inPlace {
		req.Flows, req.KeepOthers, req.Keep = changed, true, nil
	}
	return nil
}

// keepAdded names the flows that AddFlows has added in the request, if it asks for that. The caller holds op.
func (c *Client) keepAdded(req *pluginv1.SetFlowsRequest) {
	if req.KeepAdded {
		req.Keep = append(req.Keep, slices.Sorted(maps.Keys(c.added))...)
		req.KeepAdded = false
	}
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

// RemoveFlows implements dataplane.Service. When ctx ends before the plugin has returned, it goes on.
func (c *Client) RemoveFlows(ctx context.Context, names ...string) error {
	return c.change(ctx, change{
		rpc: func(ctx context.Context, s *session) error {
			return s.svc.RemoveFlows(context.WithoutCancel(ctx), names...)
		},
		note: func() {
			c.flows.remove(names)
			for _, name := range names {
				delete(c.added, name)
			}
		},
	})
}

// change is a change of the flows.
type change struct {
	rpc  func(context.Context, *session) error // returns the outcome, also after the end of its context
	note func()                                // notes the change for a restart
}

// turn waits until no change of the flows is under way, and lets none begin until the
// caller has taken from c.op.
func (c *Client) turn(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	select {
	case c.op <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.child.Exited:
		return nil, c.sessionError(ctx, s, dataplane.ErrUnavailable)
	case <-c.life.Done():
		return nil, dataplane.ErrClosed
	}
	if now, err := c.session(); err != nil || now != s {
		<-c.op
		return nil, c.sessionError(ctx, s, dataplane.ErrUnavailable)
	}
	return s, nil
}

// grace is how long a caller waits for the outcome of a change after the end of its context: somewhat longer than
// the instance needs to undo the change where no device holds it up.
const grace = 1500 * time.Millisecond

// change makes a call that changes the flows, one at a time, and notes it when it succeeded. The end of ctx makes
// the instance undo the change; this package undoes nothing. The goroutine waits for the outcome even without the
// caller, because a restart would otherwise undo or repeat the change.
func (c *Client) change(ctx context.Context, ch change) error {
	s, err := c.turn(ctx)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-c.op }()
		err := ch.rpc(ctx, s)
		if err == nil {
			ch.note()
		}
		done <- err
	}()
	select {
	case err = <-done:
		return c.sessionError(ctx, s, err)
	case <-ctx.Done():
	}
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case err = <-done:
		return c.sessionError(ctx, s, err)
	case <-patience.C:
		return fmt.Errorf("waiting for the plugin: %w; Placements tells the outcome", ctx.Err())
	}
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

// Conditions implements dataplane.Service. While the plugin is down the one
// condition is dataplane.CodePluginRestarting.
func (c *Client) Conditions(ctx context.Context) ([]dataplane.Condition, error) {
	c.mu.Lock()
	s, down := c.cur, c.down
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

// Kill is Close without an orderly end: the process is killed, and its programs may stay attached until the
// next instance of this name adopts them. It also hurries a Close under way.
func (c *Client) Kill() error {
	c.hurry(errKilled)
	return c.Close()
}

// Close implements dataplane.Service: it ends the instance in order, then the process. Calls under way return
// ErrClosed.
func (c *Client) Close() error {
	c.end()
	<-c.finished
	c.reapers.Wait()
	c.mu.Lock()
	left := c.receivers
	c.receivers = nil
	c.mu.Unlock()
	for r := range left {
		r.q.Close()
	}
	return c.result
}
