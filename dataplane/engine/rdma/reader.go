package rdma

import (
	"container/heap"
	"context"
	"log/slog"
	"math"
	"sync"
	"time"
)

const (
	// The pause after a failed read doubles from backOffMin to backOffMax.
	backOffMin = 10 * time.Millisecond
	backOffMax = 5 * time.Second

	// giveUp is the number of failed reads in a row after which a pool counts as lost. With the pauses that is after 1.3 s.
	giveUp = 8
)

// queueEntry is a pool's place in the queue of its reader. reader.mu guards it.
type queueEntry struct {
	due      int64 // when the next read may begin
	good     int64 // when the last successful read began, or when the pool was added
	failures int   // in a row
	err      error // of the last of them; nil after a success
	place    int   // in the queue; -1 while the pool is being read
	gone     bool  // the pool was removed
}

// reader samples the pools of one device, one command at a time. It reads a pool at most once per period, first the one that has
// been due for longest, and all of them within the budget. So n pools are each read every n/budget seconds, and failing pools
// do not delay the others.
type reader struct {
	now       func() int64
	pace      *pacer
	period    int64
	log       *slog.Logger
	onGivenUp func(error)   // called under mu when a pool is given up
	onReset   func()        // called under mu when a device has reset slots
	wake      chan struct{} // a pool was added

	mu           sync.Mutex
	queue        poolHeap
	givenUpPools int                    // number of pools with giveUp failures or more
	live         map[*slotPool]struct{} // added and not removed: those in the queue, and the one being read
}

func newReader(now func() int64, pace *pacer, period time.Duration, log *slog.Logger, onGivenUp func(error), onReset func()) *reader {
	return &reader{
		now:       now,
		pace:      pace,
		period:    int64(period),
		log:       log,
		onGivenUp: onGivenUp,
		onReset:   onReset,
		wake:      make(chan struct{}, 1),
		live:      make(map[*slotPool]struct{}),
	}
}

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait := r.step()
		if wait == 0 {
			continue
		}
		// Shorter sleeps would cost more CPU time. burst lets the reader catch up afterwards.
		timer.Reset(max(time.Duration(wait), time.Millisecond))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.wake:
		}
	}
}

// step reads one pool if it is due, otherwise it returns how long to wait.
func (r *reader) step() (wait int64) {
	now := r.now()
	b, wait := r.takeDue(now)
	if b == nil {
		return wait
	}
	resets, err := b.sample(r.now)
	r.finish(b, now, resets, err)
	return 0
}

// takeDue takes the first pool out of the queue if it is due and the budget allows a command. Otherwise it returns how long to
// wait.
func (r *reader) takeDue(now int64) (*slotPool, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return nil, math.MaxInt64
	}
	if wait := r.queue[0].due - now; wait > 0 {
		return nil, wait
	}
	if wait := r.pace.take(now); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&r.queue).(*slotPool), 0
}

// finish puts a pool back into the queue after a read, unless the pool was removed meanwhile.
func (r *reader) finish(b *slotPool, began int64, resets int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.gone {
		return
	}
	if resets > 0 {
		r.log.Warn("a hardware counter began anew; its total goes on", "counters", resets)
		r.onReset()
	}

	if err == nil {
		r.noteSuccess(b, began)
	} else {
		r.noteFailure(b, began, err)
	}
	heap.Push(&r.queue, b)
}

// noteSuccess makes a pool due again after a period. Callers must hold mu.
func (r *reader) noteSuccess(b *slotPool, began int64) {
	if b.failures >= giveUp {
		r.givenUpPools--
	}
	if b.err != nil {
		r.log.Info("reading a hardware counter again")
	}
	b.failures = 0
	b.err = nil
	b.good = began
	b.due = began + r.period
}

// noteFailure makes a pool due again after a pause, and gives it up after too many failures in a row. It goes on reading all the
// same, as the pool may recover. Only the first failure is logged. Callers must hold mu.
func (r *reader) noteFailure(b *slotPool, began int64, err error) {
	if b.err == nil {
		r.log.Error("reading a hardware counter", "err", err)
	}
	b.failures++
	b.err = err

	pause := int64(backOffMax)
	if n := b.failures - 1; n < 10 { // a long shift would overflow
		pause = min(int64(backOffMin)<<n, pause)
	}
	b.due = began + pause

	if b.failures == giveUp {
		r.givenUpPools++
		r.onGivenUp(err)
	}
}

// add adds a pool to the queue and wakes the reader. It ignores a pool that it has already.
func (r *reader) add(b *slotPool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if _, ok := r.live[b]; ok {
		return
	}
	b.due = r.now()
	b.good = b.due
	r.live[b] = struct{}{}
	heap.Push(&r.queue, b)

	select {
	case r.wake <- struct{}{}:
	default: // one is pending
	}
}

// remove ends the reading of a pool. A command may still be running: take the pool's lock to wait for it.
func (r *reader) remove(b *slotPool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	b.gone = true
	if _, live := r.live[b]; !live {
		return
	}
	delete(r.live, b)
	if b.failures >= giveUp {
		r.givenUpPools--
	}
	if b.place >= 0 {
		heap.Remove(&r.queue, b.place)
	}
}

// health returns how many pools cannot be read, one of the errors, and the age of the oldest sample of the other pools.
func (r *reader) health(now int64) (failing int, err error, oldest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for b := range r.live {
		if b.err != nil {
			failing++
			err = b.err
			continue
		}
		oldest = max(oldest, time.Duration(now-b.good))
	}
	return failing, err, oldest
}

// anyGivenUp reports whether a pool is given up.
func (r *reader) anyGivenUp() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.givenUpPools > 0
}

// givenUp returns why a pool is given up, or nil.
func (r *reader) givenUp(b *slotPool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.failures < giveUp {
		return nil
	}
	return b.err
}
