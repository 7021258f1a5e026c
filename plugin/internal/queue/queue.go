// Package queue has the receiver's end of a stream of events, which never delays the sender.
package queue

import (
	"context"
	"sync"

	"github.com/flowtally/flowtally/dataplane"
)

// Length is the number of events by which a receiver may lag before it loses the oldest, as in the engine, which
// reports the losses of some thousand flows of a device at once.
const Length = 4096

// Queue is one receiver's end of a stream of events. Push never waits: it drops the oldest event of a receiver that
// lags, and counts it in the next event's Lost.
type Queue struct {
	Out chan dataplane.Event // closed at the end

	ctx    context.Context // ends with the receiver's context, and when pump has ended
	cancel context.CancelFunc

	mu      sync.Mutex
	waiting []dataplane.Event // at most Length
	wake    chan struct{}     // holds a token when waiting is not empty
	done    chan struct{}     // closed by Close; the waiting events are still delivered
	once    sync.Once
}

// New returns a queue that ends with ctx, or by Close.
func New(ctx context.Context) *Queue {
	q := &Queue{
		Out:  make(chan dataplane.Event),
		wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	q.ctx, q.cancel = context.WithCancel(ctx)
	go q.pump()
	return q
}

// Push queues an event. Where the queue is full, the event behind the dropped one tells how many are lost.
func (q *Queue) Push(ev dataplane.Event) {
	q.mu.Lock()
	if len(q.waiting) == Length {
		lost := q.waiting[0].Lost + 1
		q.drop()
		q.waiting[0].Lost += lost
	}
	q.waiting = append(q.waiting, ev)
	q.mu.Unlock()

	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// pop takes the oldest event.
func (q *Queue) pop() (ev dataplane.Event, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return ev, false
	}
	ev = q.waiting[0]
	q.drop()
	return ev, true
}

// drop removes the oldest event, and frees its strings. It is called with mu held.
func (q *Queue) drop() {
	q.waiting[0] = dataplane.Event{}
	q.waiting = q.waiting[1:]
}

// Close ends the stream when the receiver has taken the queued events, or when its context ends.
func (q *Queue) Close() { q.once.Do(func() { close(q.done) }) }

// pump hands events out one by one, and closes the channel at the end. The
// event on offer does not wait any more, so it outlives younger ones that are
// dropped; the order holds, and the event behind the gap says how wide it is.
func (q *Queue) pump() {
	defer close(q.Out)
	defer q.cancel()
	for {
		ev, ok := q.pop()
		if !ok {
			select {
			case <-q.wake:
				continue
			case <-q.ctx.Done():
				return
			case <-q.done:
			}
			if ev, ok = q.pop(); !ok {
				return
			}
		}

		select {
		case q.Out <- ev:
		case <-q.ctx.Done():
			return
		}
	}
}

// Context ends with the receiver.
func (q *Queue) Context() context.Context { return q.ctx }
