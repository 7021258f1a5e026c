// Package tick wakes a goroutine periodically, at a fraction of the cost of a time.Ticker.
//
// In an otherwise idle process each tick of a time.Ticker wakes threads about ten times. The runtime waits in epoll_pwait(2), which
// takes whole milliseconds, so it has to wait twice. Its monitor thread wakes too, and polls every 20 µs until somebody serves the
// timer. And the goroutine that becomes ready wakes another thread, which finds nothing to do. A descriptor of timerfd_create(2)
// is cheaper: when it expires, one thread wakes and runs the goroutine.
//
// On systems without timerfd a Ticker uses a time.Ticker.
package tick

import (
	"sync"
	"time"
)

// Ticker ticks for one goroutine. It drops a tick that the goroutine does not wait for; the next one comes at its planned time.
// New makes a Ticker.
type Ticker struct {
	timer  timer
	mu     sync.Mutex
	period time.Duration
	kicked bool // Kick was called since Wait returned
}

// timer is the mechanism of a Ticker.
type timer interface {
	// wait returns after the next expiry, or at once if the timer has expired since the last wait. After close it returns at
	// once.
	wait()
	// set makes the timer expire after first, and then after each period. With a period of 0 it expires only once. With a
	// first of 0 it never expires.
	set(first, period time.Duration)
	// close ends every wait.
	close()
}

// NewRuntime returns a Ticker that uses a time.Ticker. In a bubble of testing/synctest it follows the bubble's clock, which a
// timerfd does not.
func NewRuntime() *Ticker { return &Ticker{timer: newRuntimeTimer()} }

// New returns a Ticker that does not tick before Reset.
func New() *Ticker {
	t, err := newTimer()
	if err != nil {
		t = newRuntimeTimer()
	}
	return &Ticker{timer: t}
}

// Wait returns after the next tick, after a Kick, or after Close. Only one goroutine may call it.
func (t *Ticker) Wait() {
	t.timer.wait()
	t.mu.Lock()
	t.kicked = false
	t.mu.Unlock()
}

// Reset starts a new series of ticks, with that period. A period of 0 ends the ticks. Any goroutine may call it.
func (t *Ticker) Reset(period time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.period = period
	t.set()
}

// Kick makes one Wait return at once: the current one, or the next. The period starts again. Any goroutine may call it.
func (t *Ticker) Kick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kicked = true
	t.set()
}

// set sets the timer. A Reset must not undo a Kick that Wait has not seen yet. The caller holds mu.
func (t *Ticker) set() {
	first := t.period
	if t.kicked {
		first = 1 // ns: at once, where 0 would mean never
	}
	t.timer.set(first, t.period)
}

// Close ends the Ticker. From then on Wait returns at once. Idempotent.
func (t *Ticker) Close() { t.timer.close() }
