package toprows

import (
	"context"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
)

const (
	counters = 4096
	period   = 100 * time.Millisecond // between two looks
	share    = 0.02                   // of a core, that the looks may take
	looks    = 5                      // in one round
)

// Rows returns the rows of top. bin is the directory of the program flowtally.
func Rows(bin string) []bench.Row {
	return []bench.Row{{
		Name: "top.4k", Ref: "the same process asleep, and 2 % of a core", Bound: 1.0, Unit: "ns of CPU time per look at 10 Hz",
		Rounds: 9, Openings: 1, Time: 30 * time.Second, // a round takes a second
		Open: func(context.Context, bench.Env) (*bench.Sides, error) { return open(bin) },
	}}
}
