package plugin

import (
	"context"
	"errors"
	"io"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin/internal/queue"
)

// receiver is one stream of events, which outlives sessions.
type receiver struct {
	q  *queue.Queue
	on *session // the last one that it was attached to; guarded by Client.mu
}

// Events implements dataplane.Service. The stream goes on over restarts, each of which it
// shows as condition-raised, plugin-restarted and condition-gone.
func (c *Client) Events(ctx context.Context) (<-chan dataplane.Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &receiver{q: queue.New(ctx)}
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		r.q.Close()
		return nil, dataplane.ErrClosed
	}
	c.receivers[r] = struct{}{}
	s := c.current
	r.on = s
	c.mu.Unlock()
	context.AfterFunc(r.q.Context(), func() { c.drop(r) })
	if s == nil {
		return r.q.Out, nil // the next session attaches it
	}
	if err := c.attach(r, s); err != nil {
		if err = c.sessionError(ctx, s, err); !errors.Is(err, dataplane.ErrUnavailable) {
			c.drop(r)
			return nil, err
		}
	}
	return r.q.Out, nil
}

// attach subscribes r on s and returns when the plugin has confirmed the subscription. When s ends without the
// instance, the next session attaches r again.
func (c *Client) attach(r *receiver, s *session) error {
	next, err := s.svc.subscribe(r.q.Context())
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-s.ready: // events of s follow the event of its start
		case <-s.child.Exited:
		}
		for {
			ev, err := next()
			if errors.Is(err, io.EOF) {
				c.drop(r)
			}
			if err != nil {
				return
			}
			r.q.Push(ev)
		}
	}()
	return nil
}

func (c *Client) drop(r *receiver) {
	c.mu.Lock()
	delete(c.receivers, r)
	c.mu.Unlock()
	r.q.Close()
}

// broadcast sends an event of the supervisor itself. The caller holds c.mu; push never waits.
func (c *Client) broadcast(ev dataplane.Event) {
	for r := range c.receivers {
		r.q.Push(ev)
	}
}
