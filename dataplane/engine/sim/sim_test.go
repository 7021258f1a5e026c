package sim

import (
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// A demonstration may run for months with many flows. Microseconds times a rate would not fit 64 bits by then.
func TestCountsKeepRisingForMonths(t *testing.T) {
	var now time.Duration
	s := New(func() time.Duration { return now })
	flows := make([]backend.Placed, 1000)
	for i := range flows {
		flows[i].Flow = flow.Flow{Name: string(rune('a' + i))}
	}
	in, err := s.Install(t.Context(), flows)
	if err != nil {
		t.Fatal(err)
	}

	for _, days := range []int{1, 100, 300} {
		now = time.Duration(days)*24*time.Hour + 500*time.Millisecond
		last := in[len(in)-1]
		got, err := backend.ReadOne(s, last.ID)
		if err != nil {
			t.Fatal(err)
		}
		packets := uint64(days)*24*3600*1000*packetsPerSecond + 500*packetsPerSecond
		if want := (backend.Pair{Packets: packets, Bytes: packets * packetBytes}); got != want {
			t.Errorf("flow 1000 after %d days: %+v, want %+v", days, got, want)
		}
	}
}
