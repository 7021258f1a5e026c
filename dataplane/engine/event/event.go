// Package event distributes the events of an instance to any number of receivers.
package event

import (
	"context"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// buffer is how many events a receiver may lag behind before it loses the oldest. A device with thousands of flows causes
// one event per flow when it fails, and these must not get lost: only they say how many packets a total lacks.
const buffer = 4096

// Broadcaster delivers events to receivers and never waits for one. The zero value is ready to use.
type Broadcaster struct {
	mu     sync.Mutex
	subs   map[*subscriber]struct{}
	closed bool
}

// subscriber is one receiver.
type subscriber struct {
	ch   chan dataplane.Event
	lost uint64 // number of events dropped since the last one sent
}

// Subscribe returns a channel with all events from now on. The channel is closed when ctx ends or by Close.
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

// Send publishes an event with only a kind, an object and a text.
func (b *Broadcaster) Send(kind dataplane.EventKind, object, text string) {
	b.Publish(dataplane.Event{Kind: kind, Object: object, Text: text})
}

// Publish delivers an event to every receiver, and sets its time if it has none. A receiver with a full buffer loses the
// oldest events; Lost in its next event says how many.
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

// send puts an event into the buffer, and drops the oldest ones to make room. The caller holds Broadcaster.mu, so nobody
// else sends. The receiver may receive at the same time, so both channel operations must have a default.
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

// Close closes the channels of all receivers, and of later ones.
func (b *Broadcaster) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for s := range b.subs {
		delete(b.subs, s)
		close(s.ch)
	}
}
