package poll

import (
	"cmp"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// Cycles slow down once nothing has changed, and no waiter was woken, for quietAfter.
const quietAfter = 10 * time.Second

// periods are the times between two cycles.
type periods struct {
	fast  time.Duration // while values change or processes wait
	idle  time.Duration // after quiet without either
	quiet time.Duration
}

// newPeriods returns the configured periods. 0 is the default. No idle period is shorter than the other one.
func newPeriods(fast, idle time.Duration) *periods {
	fast = cmp.Or(fast, dataplane.DefaultPollPeriod)
	return &periods{
		fast:  fast,
		idle:  max(fast, cmp.Or(idle, dataplane.DefaultIdlePeriod)),
		quiet: quietAfter,
	}
}

// at returns the period of a plan with so many sources. active is the time of the last change, or of the last wake
// that woke a process. Without sources a cycle is a heartbeat and nothing else.
func (p *periods) at(now int64, sources int, active int64) time.Duration {
	switch {
	case sources == 0:
		return max(p.fast, beatPeriod)
	case now-active < int64(p.quiet):
		return p.fast
	}
	return p.idle
}
