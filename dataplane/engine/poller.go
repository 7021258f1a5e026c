package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

const (
	defaultHistoryPeriod = time.Second
	// conditionWindow is how many cycles are looked at together to say that polling is late.
	conditionWindow = 128
	// beatPeriod is how often readers get a sign of life between cycles that are further apart: half of
	// what the mirror lets them expect.
	beatPeriod = 250 * time.Millisecond
)

// poller runs the plan, at a fixed period or without pause on a core of its own.
type poller struct {
	plan   *plan
	writer *shm.Writer
	cfg    dataplane.PollConfig
	log    *slog.Logger

	cycles   atomic.Uint64
	overruns atomic.Uint64 // cycles that were due before the one before them had ended
	failing  atomic.Pointer[string]
	late     atomic.Bool // more than one in eight of the last window
}

// run polls until ctx ends, then once more, so that what was counted by then is published.
func (p *poller) run(ctx context.Context) {
	if p.cfg.Busy {
		p.runBusy(ctx)
	} else {
		p.runPeriodic(ctx)
	}
	p.once()
}

func (p *poller) runPeriodic(ctx context.Context) {
	period := p.cfg.Period
	if period == 0 {
		period = backend.DefaultPeriod
	}
	// A ticker drops ticks that were not taken, so a late cycle is followed by the
	// next one on the grid, and never by a burst of those that were missed.
	tick := time.NewTicker(period)
	defer tick.Stop()
	var beat <-chan time.Time
	if period > beatPeriod {
		between := time.NewTicker(beatPeriod)
		defer between.Stop()
		beat = between.C
	}
	var late int
	for n := 1; ; n++ {
		start := time.Now()
		p.once()
		if time.Since(start) > period {
			p.overruns.Add(1)
			late++
		}
		if n%conditionWindow == 0 {
			p.late.Store(late > conditionWindow/8)
			late = 0
		}
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				due = true
			case <-beat:
				p.writer.Heartbeat(shm.Now())
			}
		}
	}
}

func (p *poller) runBusy(ctx context.Context) {
	runtime.LockOSThread()
	// The thread keeps its affinity, so it is not given back: no UnlockOSThread.
	if err := pinThread(p.cfg.CPU); err != nil {
		p.log.Warn("pinning the poller to its core", "cpu", p.cfg.CPU, "err", err)
	}
	for ctx.Err() == nil {
		p.once()
	}
}

// once is one poll cycle.
func (p *poller) once() {
	err := p.cycle()
	p.cycles.Add(1)
	p.report(err)
}

// cycle reads and publishes. A mirror that was cut short meanwhile is an error: Engine.keepMirror makes
// it anew.
func (p *poller) cycle() error {
	err := shm.Guard(func() error { return p.plan.cycle(p.writer, shm.Now()) })
	if errors.Is(err, shm.ErrTruncated) && p.writer.AbandonCycle() { // a fault on the mirror ended it
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

// errDamaged: the cycle could not be published. That says nothing of the sources.
var errDamaged = errors.New("the mirror is damaged")

// report logs a failing source when it begins and when it ends, not every cycle.
func (p *poller) report(err error) {
	was := p.failing.Load()
	switch {
	case err == nil && was == nil:
	case errors.Is(err, errDamaged): // keepMirror makes it anew, and raises a condition
	case err == nil:
		p.failing.Store(nil)
		p.log.Info("reading counters again")
	case was == nil || *was != err.Error():
		text := err.Error()
		p.failing.Store(&text)
		p.log.Error("reading counters", "err", err)
	}
}

func (p *poller) conditions() []dataplane.Condition {
	var out []dataplane.Condition
	if text := p.failing.Load(); text != nil {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeSourceUnreadable, Severity: dataplane.High, Object: "poller", Text: *text,
			Fix: "flowtally doctor",
		})
	}
	if p.late.Load() {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodePollOverrun, Severity: dataplane.Low, Object: "poller",
			Text: "poll cycles take longer than their period; values are older than configured",
			Fix:  "raise poll.period, or give the process more CPU",
		})
	}
	return out
}
