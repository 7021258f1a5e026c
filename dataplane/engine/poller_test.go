package engine

import (
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// A writer whose cycles are far apart is alive between them: readers see its heart beat, or
// those that wait for a count would give it up for dead.
func TestAHeartBeatsBetweenCycles(t *testing.T) {
	cfg := config(t, flow.Flow{Name: "web"})
	cfg.Poll.Period = time.Hour
	start(t, cfg)
	r := reader(t, cfg)
	cycles, beats := uint64(0), 0
	last := r.Status()
	for end := time.Now().Add(20 * time.Second); beats < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d beats of a heart in 20 s, the last %v ago", beats, last.Age)
		}
		now := r.Status()
		if now.Age < last.Age { // without a beat it only grows
			beats++
		}
		last, cycles = now, now.Cycle
	}
	if cycles > 1 {
		t.Errorf("%d cycles with a period of an hour", cycles)
	}
}
