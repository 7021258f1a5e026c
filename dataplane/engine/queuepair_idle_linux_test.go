package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// TestIdleQueuePairsAreLookedAtOncePerPeriod, and no more often, within 1 to 10 ms. It logs the CPU
// time; the software device has a thread of its own per queue pair.
func TestIdleQueuePairsAreLookedAtOncePerPeriod(t *testing.T) {
	const pairs = 64
	span := times.Brief(2*time.Second, 200*time.Millisecond)
	for _, c := range []struct{ period, pause time.Duration }{
		{500 * time.Microsecond, time.Millisecond}, {5 * time.Millisecond, 5 * time.Millisecond}, {time.Second, 10 * time.Millisecond},
	} {
		t.Run(c.period.String(), func(t *testing.T) {
			s := newSoftNIC(t)
			cfg := s.pairConfig(t)
			cfg.Poll.Period, cfg.QueuePairs = c.period, nil
			for i := range pairs {
				cfg.QueuePairs = append(cfg.QueuePairs, dataplane.QueuePair{Name: fmt.Sprintf("idle%d", i), Device: s.Device, SendDepth: 1, Receives: 1})
			}
			s.startPairs(t, cfg)
			time.Sleep(20 * c.pause)
			since := time.Now()
			looks, cpu := s.Calls(t, "ibv_poll_cq"), cpuTime(t)
			time.Sleep(span)
			looks, cpu = s.Calls(t, "ibv_poll_cq")-looks, cpuTime(t)-cpu
			took := time.Since(since)
			t.Logf("%d idle queue pairs: each was looked at %.0f times a second, which took %.2f ms of CPU",
				pairs, float64(looks)/pairs/took.Seconds(), cpu.Seconds()*1e3/pairs/took.Seconds())
			const growing = 16 // looks of one that had no CPU before, until its pause is the longest
			if most := (uint64(took/c.pause) + growing) * pairs; looks > most {
				t.Errorf("they were looked at %d times in %v, want at most %d", looks, took, most)
			}
		})
	}
}
