package engine

import (
	"context"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// eventBuffer is the number of events by which a receiver may lag behind before it loses the oldest. A device of some
// thousand flows sends as many when it goes, and only events declare the packets that a total lacks.
const eventBuffer = 4096

// broadcaster delivers events to any number of receivers and does not wait for any.
type broadcaster struct {
	mu     sync.Mutex
	subs   map[*subscriber]struct{}
	closed bool
}

type subscriber struct {
	ch   chan dataplane.Event
	lost uint64
}

func (b *broadcaster) subscribe(ctx context.Context) <-chan dataplane.Event {
	s := &subscriber{ch: make(chan dataplane.Event, eventBuffer)}
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

func (b *broadcaster) drop(s *subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.subs[s]; ok {
		delete(b.subs, s)
		close(s.ch)
	}
}

// send delivers an event of a kind about an object.
func (b *broadcaster) send(kind dataplane.EventKind, object, text string) {
	b.publish(dataplane.Event{Kind: kind, Object: object, Text: text})
}

// publish delivers an event to every receiver, with the time. A receiver whose buffer is full loses its oldest event; the
// next one says how many it lost.
func (b *broadcaster) publish(ev dataplane.Event) {
	ev.Time = time.Now()
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

func (b *broadcaster) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for s := range b.subs {
		delete(b.subs, s)
		close(s.ch)
	}
}
