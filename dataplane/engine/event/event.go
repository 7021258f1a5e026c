// Package event delivers the events of an instance.
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

type subscriber struct {
	ch   chan dataplane.Event
	lost uint64
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

// Publish delivers an event to every receiver, with the time if it has none. A receiver whose buffer is full loses its oldest event; the
// next one says how many it lost.
func (b *Broadcaster) Publish(ev dataplane.Event) {
	if ev.Time.IsZero() {
		ev.Time = time.Now()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subs {
		for {
			ev.Lost = s.lost
			select {
			case s.ch <- ev:
				s.lost = 0
			default:
				select {
				case old := <-s.ch:
					s.lost += old.Lost + 1
				default:
				}
				continue
			}
			break
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
