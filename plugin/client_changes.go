package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

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

// RemoveFlows implements dataplane.Service. It continues after the end of ctx.
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

// SetFlows implements dataplane.Service. If the plugin dies meanwhile, the next one has either all flows from before the
// call or all from after it.
func (c *Client) SetFlows(ctx context.Context, flows []flow.Flow, opts dataplane.SetOptions) (dataplane.Difference, error) {
	req, err := setToProto(flows, opts)
	if err != nil {
		return dataplane.Difference{}, err
	}
	req.Renames = maps.Clone(req.Renames) // the caller may change its map while the change continues
	return c.relaySet(ctx, req)
}

// relaySet implements relay: it is SetFlows for a request as it came over the wire.
func (c *Client) relaySet(ctx context.Context, req *pluginv1.SetFlowsRequest) (dataplane.Difference, error) {
	if req.Config != nil {
		req.Config.Flows = nil
	}
	if req.DryRun {
		return c.dryRun(ctx, req)
	}

	var got dataplane.Difference
	var encoded []string
	err := c.change(ctx, change{
		rpc: func(ctx context.Context, s *session) (err error) {
			if err = c.prepare(req); err != nil {
				return err
			}
			if encoded, err = encodeFlows(req.Flows); err != nil {
				return fmt.Errorf("setting flows: %w", err)
			}
			got, err = s.svc.setFlows(ctx, 0, req)
			return err
		},
		note: func() { c.noteSet(req, encoded) },
	})
	if err != nil {
		return dataplane.Difference{}, err // not got: the goroutine of a change that continues may still write to it
	}
	return got, nil
}

// dryRun asks the plugin for the difference. It waits for a change under way to prepare the request, and then lets other
// changes begin.
func (c *Client) dryRun(ctx context.Context, req *pluginv1.SetFlowsRequest) (dataplane.Difference, error) {
	s, err := c.beginChange(ctx)
	if err != nil {
		return dataplane.Difference{}, err
	}
	err = c.prepare(req)
	c.endChange()

	var d dataplane.Difference
	if err == nil {
		d, err = s.svc.setFlows(ctx, 0, req)
	}
	return d, c.sessionError(ctx, s, err)
}

// prepare completes a SetFlows request with what only the host knows. The caller holds changing.
func (c *Client) prepare(req *pluginv1.SetFlowsRequest) error {
	c.keepAdded(req)
	c.keepWords(req.Config)
	return c.sendLess(req)
}

// keepAdded replaces KeepAdded by the names of the added flows, because a plugin that was restarted does not know which flows were
// added. The caller holds c.changing.
func (c *Client) keepAdded(req *pluginv1.SetFlowsRequest) {
	if req.KeepAdded {
		req.Keep = append(req.Keep, slices.Sorted(maps.Keys(c.added))...)
		req.KeepAdded = false
	}
}

// sendLess reduces the request to the flows that differ, with KeepOthers for the rest, if the outcome is the same. The
// plugin then parses one flow instead of 100,000. The caller holds changing.
func (c *Client) sendLess(req *pluginv1.SetFlowsRequest) error {
	if req.KeepOthers || len(req.Renames) > 0 {
		return nil
	}
	// In degraded mode the plugin tries given flows again that it could not count, even if they have not changed.
	if c.base.GetStart() == string(dataplane.StartDegraded) {
		return nil
	}
	// An added flow counts as added no longer once it is given.
	if slices.ContainsFunc(req.Flows, func(f *pluginv1.Flow) bool { return c.added[f.Name] }) {
		return nil
	}

	changed, inPlace, err := c.flows.changed(req.Flows, req.Keep)
	if err != nil {
		return fmt.Errorf("setting flows: %w", err)
	}
	if inPlace {
		req.Flows = changed
		req.KeepOthers = true
		req.Keep = nil
	}
	return nil
}

// noteSet records a successful SetFlows for restarts. The caller holds changing.
func (c *Client) noteSet(req *pluginv1.SetFlowsRequest, encoded []string) {
	c.flows.set(req.Flows, encoded, req.KeepOthers, req.Renames, req.Keep)

	for _, f := range req.Flows {
		delete(c.added, f.Name)
	}
	maps.DeleteFunc(c.added, func(name string, _ bool) bool { return !c.flows.has(name) })

	if req.Config != nil {
		c.base = req.Config
	}
}

// change is a change of the flows, or of the reserved words.
type change struct {
	rpc  func(context.Context, *session) error // must return the outcome even if its context has ended
	note func()                                // records the success for restarts
}

// grace is how long a caller waits for the outcome after the end of its context. The instance usually needs less to undo
// the change, unless a device is slow.
const grace = 1500 * time.Millisecond

// change performs one change at a time and records it if it succeeds. If ctx ends, the instance undoes the change; this
// package undoes nothing.
//
// The caller may leave before the outcome is known, but the goroutine always waits for it. Otherwise a restart could undo
// a complete change, or repeat an undone one.
func (c *Client) change(ctx context.Context, ch change) error {
	s, err := c.beginChange(ctx)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer c.endChange()
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

// beginChange waits for a change under way and begins the next one in the current session. The caller must call endChange.
func (c *Client) beginChange(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := c.session()
	if err != nil {
		return nil, err
	}

	select {
	case c.changing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.child.Exited:
		return nil, c.sessionError(ctx, s, dataplane.ErrUnavailable)
	case <-c.life.Done():
		return nil, dataplane.ErrClosed
	}

	// The plugin may have died during the wait.
	if now, err := c.session(); err != nil || now != s {
		c.endChange()
		return nil, c.sessionError(ctx, s, dataplane.ErrUnavailable)
	}
	return s, nil
}

// endChange lets the next change begin.
func (c *Client) endChange() { <-c.changing }
