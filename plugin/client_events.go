package plugin

import (
	"context"
	"errors"
	"io"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin/internal/queue"
)

// receiver is one stream of events. It outlives sessions.
type receiver struct {
	q  *queue.Queue
	on *session // the session it was last attached to; guarded by Client.mu
}

// Events implements dataplane.Service. The stream survives restarts, and shows each as condition-raised, plugin-restarted
// and condition-gone.
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
		return r.q.Out, nil // cameUp attaches it to the next session
	}
	if err := c.attach(r, s); err != nil {
		if err = c.sessionError(ctx, s, err); !errors.Is(err, dataplane.ErrUnavailable) {
			c.drop(r)
			return nil, err
		}
	}
	return r.q.Out, nil
}

// attach subscribes r in the session s, and returns when the plugin has confirmed that. r is dropped if the instance
// closes. If the plugin dies, cameUp attaches r to the next session.
func (c *Client) attach(r *receiver, s *session) error {
	next, err := s.svc.subscribe(r.q.Context())
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-s.ready: // the first event must be the one about the start of s
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

// broadcast sends an event of the supervisor itself. The caller holds c.mu, which is safe because Push does not block.
func (c *Client) broadcast(ev dataplane.Event) {
	for r := range c.receivers {
		r.q.Push(ev)
	}
}
