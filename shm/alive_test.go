package shm

import (
	"errors"
	"math"
	"testing"
	"time"
)

// Status, Wait and the C header (ft_get_status, ft_wait_over) agree whether a writer is dead, even if the
// file has nonsense as its period and heartbeat.
func TestStatusAndWaitAgreeWhichWriterIsDead(t *testing.T) {
	const now = int64(1e12)
	second := int64(time.Second)
	for _, tt := range []struct {
		period, heartbeat int64
		alive             bool
	}{
		{second, now, true},
		{second, now - 2*second, true},
		{second, now - 2*second - 2, false},
		{second, now + second, true}, // looked at the clock later than we did
		{second, 0, false},
		{0, now, true},
		{0, now - 2, false},
		{math.MaxInt64, now - 2*second, true},
		{math.MaxInt64/2 + 1, 0, true},
		{-1, 0, true}, // read as u64
		{math.MinInt64, 0, true},
		{second, math.MinInt64, true}, // not below 0 by any clock
		{second, math.MaxInt64, true},
	} {
		w, r := heapMirror(t, BlockLen, 0, 0, Options{})
		h := w.v.hdr
		period := h.heartbeatPeriod
		h.heartbeatPeriod, h.heartbeat = tt.period, tt.heartbeat
		if s := r.v.status(now); s.Alive != tt.alive {
			t.Errorf("period %d, heartbeat %d: alive %t", tt.period, tt.heartbeat, s.Alive)
		}
		if err := r.dead(now); (err == nil) != tt.alive || err != nil && !errors.Is(err, ErrNotAlive) {
			t.Errorf("period %d, heartbeat %d: waiting: %v", tt.period, tt.heartbeat, err)
		}
		h.heartbeatPeriod = period
	}
}
