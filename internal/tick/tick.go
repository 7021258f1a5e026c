// Package tick wakes a goroutine periodically, at a fraction of the cost of a time.Ticker.
//
// In an otherwise idle process each tick of a timer of Go's runtime wakes threads about ten times. epoll_pwait(2) takes whole
// milliseconds, so the runtime waits twice. Its monitor thread wakes as well, and sleeps for 20 µs at a time until the timer
// is served. The goroutine that the timer makes ready wakes another thread, which finds nothing to do. When a descriptor of
// timerfd_create(2) expires, one thread wakes, and runs the goroutine.
//
// On a system without timerfd a Ticker is a time.Ticker.
package tick

import (
	"sync"
	"time"
)

// Ticker ticks for one goroutine. A tick that the goroutine did not wait for is dropped, and the next one comes at its time.
// Made by New.
type Ticker struct {
	timer  timer
	mu     sync.Mutex
	period time.Duration
	kicked bool // Kick was called since Wait returned
}

// timer is the mechanism of a Ticker.
type timer interface {
	// wait returns after the next expiry, or at once for one that came since the last wait. After close it returns at once.
	wait()
	// set makes the timer expire after first, and after each period from then on. With a period of 0 it expires once, and
	// with a first of 0 never.
	set(first, period time.Duration)
	// close ends every wait.
	close()
}

// NewRuntime returns a Ticker on a timer of Go's runtime. In a bubble of testing/synctest it has the bubble's time.
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

// Reset makes the Ticker tick after each period, from now on. A period of 0 ends the ticks. Any goroutine may call it.
func (t *Ticker) Reset(period time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.period = period
	t.set()
}

// Kick makes one Wait return at once: the one that waits now, or the next. A new period begins. Any goroutine may call it.
func (t *Ticker) Kick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kicked = true
	t.set()
}

// set sets the timer. A Reset after a Kick does not undo the Kick. The caller holds mu.
func (t *Ticker) set() {
	first := t.period
	if t.kicked {
		first = 1 // ns: at once, where 0 would mean never
	}
	t.timer.set(first, t.period)
}

// Close ends the Ticker: Wait returns at once from then on. Idempotent.
func (t *Ticker) Close() { t.timer.close() }
