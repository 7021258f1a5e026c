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
	// burst is the time for which a reader that slept too long may catch up on its budget. On a loaded machine a
	// timer can be that late.
	burst = 10 * time.Millisecond

	// backOffMin and backOffMax bound the pause after a failed read, which doubles.
	backOffMin = 10 * time.Millisecond
	backOffMax = 5 * time.Second

	// giveUp is the number of failed reads in a row, over about 2.5 s, after which a pool counts as lost.
	giveUp = 8
)

// pacer is the budget of commands of all devices.
type pacer struct {
	mu       sync.Mutex
	interval int64 // of commands, in ns
	due      int64 // of the next one
}

func newPacer(perSecond int) *pacer {
	return &pacer{interval: max(1, int64(time.Second)/int64(perSecond))}
}

// take counts a command and returns 0, or returns the time until the budget has room for one.
func (p *pacer) take(now int64) (wait int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due > now {
		return p.due - now
	}
	p.count(now)
	return 0
}

// charge counts a command of a control call, which does not wait.
func (p *pacer) charge(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(now)
}

// count moves due by one command. The caller holds mu.
func (p *pacer) count(now int64) { p.due = max(p.due, now-int64(burst)) + p.interval }

// queueEntry is a pool's place in the queue of its reader. reader.mu guards it.
type queueEntry struct {
	due      int64 // when the next read may begin
	good     int64 // when the last successful read began, or when the pool was added
	failures int   // in a row
	err      error // of the last failure
	place    int   // in the queue; -1 while it is read
	gone     bool  // the pool was removed
}

// reader samples the pools of one device, one command at a time. It reads the pool that is due for the longest time
// first, none more often than once a period, and all within the budget. So each of n pools is read every n/budget
// seconds, and a pool that fails does not delay the others.
type reader struct {
	now       func() int64
	pace      *pacer
	period    int64
	log       *slog.Logger
	onGivenUp func(error) // called when a pool is given up
	onReset   func()      // called when a device has reset slots
	wake      chan struct{}

	mu           sync.Mutex
	queue        poolHeap
	givenUpPools int                    // number of them
	live         map[*slotPool]struct{} // added and not removed; also one that is being read
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
		// Shorter sleeps cost more CPU time, and the budget allows the reader to catch up.
		timer.Reset(max(time.Duration(wait), time.Millisecond))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.wake:
		}
	}
}

// step reads one pool that is due, or returns the time until one will be.
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

// takeDue takes the first pool out of the queue if it is due and the budget has room.
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

// finish puts a pool back into the queue, later by its pause after a failed read.
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

// noteSuccess ends the failures of a pool, which is due again after a period. The caller holds mu.
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

// noteFailure counts a failure of a pool, which is due again after a pause, and gives the pool up at the last one.
// Only the first failure is logged. The caller holds mu.
func (r *reader) noteFailure(b *slotPool, began int64, err error) {
	if b.err == nil {
		r.log.Error("reading a hardware counter", "err", err)
	}
	b.failures++
	b.err = err

	pause := int64(backOffMax)
	if n := b.failures - 1; n < 10 { // a larger shift could overflow
		pause = min(int64(backOffMin)<<n, pause)
	}
	b.due = began + pause

	if b.failures == giveUp {
		r.givenUpPools++
		r.onGivenUp(err)
	}
}

// add adds a pool to the queue, if it is not there, and wakes the reader.
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

// remove ends the reading of a pool. A command that is running holds the pool's lock.
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

// health returns the number of pools that cannot be read, one of the errors, and the age of the oldest sample of the
// other pools.
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

// givenUp returns the error of a pool that is given up, otherwise nil.
func (r *reader) givenUp(b *slotPool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.failures < giveUp {
		return nil
	}
	return b.err
}
