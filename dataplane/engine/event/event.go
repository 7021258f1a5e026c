// Package event delivers the events of an instance. [Broadcaster.Publish] sends one to all receivers, and
// [Broadcaster.Subscribe] adds a receiver.
package event

import (
	"context"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// buffer is the number of events by which a receiver may lag behind before it loses the oldest. A device of some
// thousand flows sends as many when it goes, and only events declare the packets that a total lacks.
const buffer = 4096

// Broadcaster delivers events to any number of receivers and does not wait for any.
type Broadcaster struct {
	mu     sync.Mutex
	subs   map[*subscriber]struct{}
	closed bool
}

// subscriber is one receiver.
type subscriber struct {
	ch   chan dataplane.Event
	lost uint64 // events since the last one that it was sent
}

// Subscribe returns a channel of the events from now on. It is closed when ctx ends or the broadcaster closes.
func (b *Broadcaster) Subscribe(ctx context.Context) <-chan dataplane.Event {
	s := &subscriber{ch: make(chan dataplane.Event, buffer)}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		close(s.ch)
		return s.ch
	}
	if b.subs == nil {
		b.subs = make(map[*subscriber]struct{})
	}
	b.subs[s] = struct{}{}
	context.AfterFunc(ctx, func() { b.drop(s) })
	return s.ch
}

// drop ends a subscription.
func (b *Broadcaster) drop(s *subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.subs[s]; ok {
		delete(b.subs, s)
		close(s.ch)
	}
}

// Send delivers an event of a kind about an object.
func (b *Broadcaster) Send(kind dataplane.EventKind, object, text string) {
	b.Publish(dataplane.Event{Kind: kind, Object: object, Text: text})
}

// Publish delivers an event to every receiver, with the time if it has none. A receiver whose buffer is full loses its
// oldest event, and the next event that it gets says how many it has lost.
func (b *Broadcaster) Publish(ev dataplane.Event) {
	if ev.Time.IsZero() {
		ev.Time = time.Now()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subs {
		s.send(ev)
	}
}

// send puts an event into the buffer, and takes the oldest ones out until there is room. The receiver may take some at the
// same time. No other goroutine sends: the caller holds Broadcaster.mu.
func (s *subscriber) send(ev dataplane.Event) {
	for {
		ev.Lost = s.lost
		select {
		case s.ch <- ev:
			s.lost = 0
			return
		default:
		}

		select {
		case oldest := <-s.ch:
			s.lost += oldest.Lost + 1
		default:
		}
	}
}

// Close ends all subscriptions.
func (b *Broadcaster) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for s := range b.subs {
		delete(b.subs, s)
		close(s.ch)
	}
}
