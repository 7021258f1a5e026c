package tick

import (
	"sync"
	"time"
)

// runtimeTimer is a timer of Go's runtime.
type runtimeTimer struct {
	ticker *time.Ticker
	kicked chan struct{} // capacity 1
	end    func()        // stops ticker and closes ended; only the first call does
	ended  chan struct{}
}

func newRuntimeTimer() *runtimeTimer {
	t := &runtimeTimer{
		ticker: time.NewTicker(time.Hour),
		kicked: make(chan struct{}, 1),
		ended:  make(chan struct{}),
	}
	t.ticker.Stop() // it must not tick before set
	t.end = sync.OnceFunc(func() {
		t.ticker.Stop()
		close(t.ended)
	})
	return t
}

func (t *runtimeTimer) wait() {
	select {
	case <-t.ticker.C:
	case <-t.kicked:
	case <-t.ended:
	}
}

func (t *runtimeTimer) set(first, period time.Duration) {
	if period > 0 {
		t.ticker.Reset(period)
	} else {
		t.ticker.Stop()
	}

	if first != period { // only after a Kick
		select {
		case t.kicked <- struct{}{}:
		default: // a kick is pending already
		}
	}
}

func (t *runtimeTimer) close() { t.end() }
