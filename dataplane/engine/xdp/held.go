package xdp

import (
	"sync"
	"time"

	"github.com/flowtally/flowtally/internal/tick"
)

const (
	// detachPeriod is how often watchHeld queries whether programs are still attached. The kernel sends no
	// event when a program is detached by force, neither for XDP nor for TCX.
	detachPeriod = 20 * time.Millisecond
	// idleDetachPeriod is detachPeriod while no packet is counted. To wake the process costs far more than a query.
	idleDetachPeriod = 250 * time.Millisecond
	// detachLink is the least period per attached program. One query takes 3 µs, so that
	// querying all programs takes half a percent of a CPU at most.
	detachLink = 600 * time.Microsecond
)

// heldTicker ticks while hooks are held, and less often while the instance is idle.
type heldTicker struct {
	*tick.Ticker
	mu     sync.Mutex
	held   int // hooks
	idle   bool
	period time.Duration // of the ticker
}

func (t *heldTicker) setHeld(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = n
	t.set()
}

func (t *heldTicker) setIdle(idle bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = idle
	t.set()
}

func (t *heldTicker) set() {
	if period := heldPeriod(t.held, t.idle); period != t.period {
		t.period = period
		t.Reset(period)
	}
}

// now returns the period of the ticker.
func (t *heldTicker) now() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.period
}

// heldPeriod returns how often watchHeld queries so many hooks; 0: not at all.
func heldPeriod(held int, idle bool) time.Duration {
	period := max(detachPeriod, time.Duration(held)*detachLink)
	switch {
	case held == 0:
		return 0
	case idle:
		return max(period, idleDetachPeriod)
	}
	return period
}
