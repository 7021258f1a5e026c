package poll

import (
	"cmp"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// Cycles slow down once no value has changed and no waiter was woken for quietAfter.
const quietAfter = 10 * time.Second

// periods holds the times between two cycles.
type periods struct {
	fast  time.Duration // while values change or processes wait
	idle  time.Duration // after a time of quiet with neither
	quiet time.Duration
}

// newPeriods returns the configured periods; 0 means the default. The idle period is at least the fast one.
func newPeriods(fast, idle time.Duration) *periods {
	fast = cmp.Or(fast, dataplane.DefaultPollPeriod)
	return &periods{
		fast:  fast,
		idle:  max(fast, cmp.Or(idle, dataplane.DefaultIdlePeriod)),
		quiet: quietAfter,
	}
}

// at returns the current period of a plan with that number of sources. active is the time of the last changed value or
// woken process. Without sources a cycle does nothing but beat, so one per beatPeriod is enough.
func (p *periods) at(now int64, sources int, active int64) time.Duration {
	switch {
	case sources == 0:
		return max(p.fast, beatPeriod)
	case now-active < int64(p.quiet):
		return p.fast
	}
	return p.idle
}
