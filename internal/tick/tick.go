// Package tick wakes a goroutine periodically, at a fraction of the cost of a time.Ticker.
//
// In a process that is idle otherwise, each tick of a timer of Go's runtime wakes threads about ten times. epoll_pwait(2)
// takes whole milliseconds, so that the runtime waits twice. Its monitor thread wakes as well, and sleeps for 20 µs at a
// time until the timer is served. A goroutine that a timer makes ready wakes another thread, which finds nothing to do.
// A descriptor of timerfd_create(2) that expires wakes one thread, which runs the goroutine.
//
// Where there is no timerfd, a Ticker is a time.Ticker.
package tick

import (
	"sync"
	"time"
)

// Ticker ticks for one goroutine. A tick that the goroutine did not wait for is dropped, and the next one comes at its
// time. Made by New.
type Ticker struct {
	timer  timer
	mu     sync.Mutex
	period time.Duration
	kicked bool // since Wait returned
}

// timer is the mechanism of a Ticker.
type timer interface {
	// wait returns after an expiry that no wait has returned after, and at once after close.
	wait()
	// set makes the timer expire after first, and after each period from then on. With a period of 0 it expires once, or
	// never with a first of 0.
	set(first, period time.Duration)
	close()
}

// NewRuntime returns a Ticker of Go's runtime. In a bubble of testing/synctest its time is the bubble's.
func NewRuntime() *Ticker { return &Ticker{timer: newRuntimeTimer()} }

// New returns a Ticker that does not tick before Reset.
func New() *Ticker {
	t, err := newTimer()
	if err != nil {
		t = newRuntimeTimer()
	}
	return &Ticker{timer: t}
}

// Wait returns after the next tick, after a Kick, or after Close. One goroutine calls it.
func (t *Ticker) Wait() {
	t.timer.wait()
	t.mu.Lock()
	t.kicked = false
	t.mu.Unlock()
}

// Reset makes the Ticker tick after each period from now on. A period of 0 ends the ticks. Any goroutine may call it.
func (t *Ticker) Reset(period time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.period = period
	t.set()
}

// Kick makes one Wait return at once: the present one or the next. A period begins now. Any goroutine may call it.
func (t *Ticker) Kick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kicked = true
	t.set()
}

// set sets the timer. A Reset that follows a Kick does not undo it.
func (t *Ticker) set() {
	first := t.period
	if t.kicked {
		first = 1
	}
	t.timer.set(first, t.period)
}

// Close ends the Ticker: Wait returns at once from then on. Idempotent.
func (t *Ticker) Close() { t.timer.close() }
