package xdp

import (
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/tick"
)

func TestHooksAreQueriedLessOftenIfManyOrIdle(t *testing.T) {
	for _, tt := range []struct {
		held int
		idle bool
		want time.Duration
	}{
		{0, false, 0},
		{0, true, 0},
		{1, false, 20 * time.Millisecond},
		{1, true, 250 * time.Millisecond},
		{100, false, 60 * time.Millisecond},
		{100, true, 250 * time.Millisecond},
		{1000, true, 600 * time.Millisecond},
	} {
		h := heldTicker{Ticker: tick.New()}
		h.setIdle(tt.idle)
		h.setHeld(tt.held)
		if h.period != tt.want {
			t.Errorf("%d hooks, idle %v: %v, want %v", tt.held, tt.idle, h.period, tt.want)
		}
		h.setHeld(1)
		h.setIdle(false)
		if h.period != detachPeriod {
			t.Errorf("one hook afterwards: %v", h.period)
		}
		h.Close()
	}
}
