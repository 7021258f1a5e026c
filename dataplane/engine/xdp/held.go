package xdp

import (
	"sync"
	"time"

	"github.com/flowtally/flowtally/internal/tick"
)

const (
	// detachPeriod is the period of watchHeld. We have to ask, because the kernel sends no event when somebody detaches a
	// program, neither for XDP nor for TCX.
	detachPeriod = 20 * time.Millisecond
	// idleDetachPeriod is the period while no packet is counted. Waking the process costs far more than the queries.
	idleDetachPeriod = 250 * time.Millisecond
	// detachLink is the least period per hook. A query takes 3 µs, so the queries take at most half a percent of a CPU,
	// however many hooks there are.
	detachLink = 600 * time.Microsecond
)

// heldTicker is the ticker of watchHeld. It does not tick without hooks, and less often while the instance is idle. The poller
// calls setIdle, so heldTicker has a lock of its own: mu of the backend may be held for seconds.
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

// now returns the present period.
func (t *heldTicker) now() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.period
}

// heldPeriod returns the period for a number of held hooks. 0 stops the ticker.
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
