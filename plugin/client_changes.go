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

// SetFlows implements dataplane.Service. After a restart the plugin has the flows from before the call or from after it.
func (c *Client) SetFlows(ctx context.Context, flows []flow.Flow, opts dataplane.SetOptions) (dataplane.Difference, error) {
	req, err := setToProto(flows, opts)
	if err != nil {
		return dataplane.Difference{}, err
	}
	req.Renames = maps.Clone(req.Renames) // the caller's
	return c.relaySet(ctx, req)
}

// relaySet implements relay: it is SetFlows of a request in the form of the wire.
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
		return dataplane.Difference{}, err // a call that goes on may still write to got
	}
	return got, nil
}

// dryRun asks the plugin for the difference. Only the request has to wait for a change under way; the answer does not
// keep others waiting.
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

// prepare completes a request of SetFlows by what only the host knows. A change is under way.
func (c *Client) prepare(req *pluginv1.SetFlowsRequest) error {
	c.keepAdded(req)
	c.keepWords(req.Config)
	return c.sendLess(req)
}

// keepAdded names the flows that AddFlows has added in the request, if it asks for that. A change is under way.
func (c *Client) keepAdded(req *pluginv1.SetFlowsRequest) {
	if req.KeepAdded {
		req.Keep = append(req.Keep, slices.Sorted(maps.Keys(c.added))...)
		req.KeepAdded = false
	}
}

// sendLess makes a request one of the flows that it changes, beside all others, where that has the same outcome: then
// the plugin reads one flow of 100,000. A change is under way.
func (c *Client) sendLess(req *pluginv1.SetFlowsRequest) error {
	if req.KeepOthers || len(req.Renames) > 0 {
		return nil
	}
	// A plugin that goes on without refused flows tries those again that it is given.
	if c.base.GetStart() == string(dataplane.StartDegraded) {
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
		req.Flows = changed
		req.KeepOthers = true
		req.Keep = nil
	}
	return nil
}

// noteSet notes a SetFlows for a restart. A change is under way.
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
	rpc  func(context.Context, *session) error // returns the outcome, also after the end of its context
	note func()                                // notes the change for a restart
}

// grace is how long a caller waits for the outcome of a change after the end of its context: somewhat longer than
// the instance needs to undo the change where no device holds it up.
const grace = 1500 * time.Millisecond

// change makes a call that changes the flows, one at a time, and notes it when it succeeded. The end of ctx makes
// the instance undo the change; this package undoes nothing. The goroutine waits for the outcome even without the
// caller, because a restart would otherwise undo or repeat the change.
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

// beginChange waits until no change is under way, and begins one in the running session. The caller ends it by endChange.
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

	// The session may have ended during the wait.
	if now, err := c.session(); err != nil || now != s {
		c.endChange()
		return nil, c.sessionError(ctx, s, dataplane.ErrUnavailable)
	}
	return s, nil
}

// endChange lets the next change begin.
func (c *Client) endChange() { <-c.changing }
