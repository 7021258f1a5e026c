package poll

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/tick"
	"github.com/flowtally/flowtally/shm"
)

const (
	// conditionWindow is the number of cycles over which late cycles are counted.
	conditionWindow = 128
	// beatPeriod is the time between two heartbeats while cycles are further apart: half of
	// the heartbeat period that the mirror promises its readers.
	beatPeriod = 250 * time.Millisecond
)

// Options of a Poller.
type Options struct {
	Plan   *Plan
	Writer *shm.Writer
	Config dataplane.PollConfig
	Logger *slog.Logger
	// Idle is called when cycles become further apart because nothing changes, and when they do not any more. It may be
	// nil.
	Idle func(idle bool)
	// Ticker is nil, for one of tick.New. Run closes it.
	Ticker *tick.Ticker
}

// Poller runs the cycles of a plan.
type Poller struct {
	opts    Options
	ticker  *tick.Ticker
	periods atomic.Pointer[periods]

	cycles  atomic.Uint64
	failing atomic.Pointer[string] // error text of the last cycle; nil: it succeeded
	late    atomic.Bool            // more than one in eight cycles of the last window
	idle    bool                   // as Options.Idle was told; of Run's goroutine
}

// New returns a poller that does not run yet. Run ends its ticker.
func New(o Options) *Poller {
	p := &Poller{opts: o, ticker: o.Ticker}
	if p.ticker == nil {
		p.ticker = tick.New()
	}
	o.Plan.onAdded(p.ticker.Kick)
	p.SetPeriods(o.Config.Period, o.Config.IdlePeriod)
	return p
}

// SetPeriods changes the period, and the period while nothing changes, from the next cycle on. 0 is the default. A
// poller that polls without pause has no period. Any goroutine may call it.
func (p *Poller) SetPeriods(period, idle time.Duration) {
	p.periods.Store(newPeriods(period, idle))
	p.ticker.Kick()
}

// Run polls until ctx ends, then runs one more cycle, which publishes the last counts.
func (p *Poller) Run(ctx context.Context) {
	defer p.ticker.Close()
	if p.opts.Config.Busy {
		p.runBusy(ctx)
	} else {
		p.runPeriodic(ctx)
	}
	p.Poll()
}

// runPeriodic runs a cycle at each tick, or a heartbeat where cycles are further apart than beatPeriod. The ticker drops
// ticks that were not taken: a late cycle is followed by the next one on the grid, and never by a burst of missed cycles.
func (p *Poller) runPeriodic(ctx context.Context) {
	defer context.AfterFunc(ctx, p.ticker.Kick)()

	late := 0
	period := p.setPace(0)
	for n := 1; ; n++ {
		start := time.Now()
		p.Poll()
		if time.Since(start) > period {
			late++
		}
		if n%conditionWindow == 0 {
			p.late.Store(late > conditionWindow/8)
			late = 0
		}

		period = p.setPace(period)
		if !p.awaitCycle(ctx, period) {
			return
		}
	}
}

// awaitCycle waits until the next cycle is due, with heartbeats meanwhile. It reports whether there is one: false when ctx
// has ended.
func (p *Poller) awaitCycle(ctx context.Context, period time.Duration) bool {
	for beats := beatsIn(period); beats > 0; beats-- {
		p.ticker.Wait()
		if ctx.Err() != nil {
			return false
		}
		if p.pace() != period { // a cycle is due, which begins the other period
			return true
		}
		if beats > 1 {
			p.opts.Writer.Heartbeat(shm.Now())
		}
	}
	return true
}

// beatsIn returns the number of ticks in a period.
func beatsIn(period time.Duration) int { return int((period + beatPeriod - 1) / beatPeriod) }

// setPace makes the present pace the period, and tells readers of another one before the first pause. It returns the
// period.
func (p *Poller) setPace(was time.Duration) time.Duration {
	period := p.pace()
	if idle := period > p.periods.Load().fast; idle != p.idle && p.opts.Idle != nil {
		p.idle = idle
		p.opts.Idle(idle)
	}
	if period != was {
		p.tell(period)
		p.ticker.Reset(period / time.Duration(beatsIn(period)))
	}
	return period
}

// pace returns the time until the next cycle.
func (p *Poller) pace() time.Duration {
	sources, changed := p.opts.Plan.activity()
	return p.periods.Load().at(shm.Now(), sources, max(changed, p.opts.Writer.WokenAt()))
}

// tell tells readers the period.
func (p *Poller) tell(period time.Duration) {
	if err := p.opts.Writer.SetPollPeriod(period); err != nil && !errors.Is(err, shm.ErrTruncated) { // the engine replaces the file
		p.opts.Logger.Warn("telling readers the poll period", "err", err)
	}
}

// runBusy runs one cycle after the other, on a core of its own.
func (p *Poller) runBusy(ctx context.Context) {
	p.tell(0)
	runtime.LockOSThread()
	// The thread keeps its affinity. Without UnlockOSThread it ends with the goroutine.
	if err := pinThread(p.opts.Config.CPU); err != nil {
		p.opts.Logger.Warn("pinning the poller to its core", "cpu", p.opts.Config.CPU, "err", err)
	}
	for ctx.Err() == nil {
		p.Poll()
	}
}

// Poll runs one cycle.
func (p *Poller) Poll() {
	err := p.cycle()
	p.cycles.Add(1)
	p.logChange(err)
}

// Cycles returns the number of cycles that have run.
func (p *Poller) Cycles() uint64 { return p.cycles.Load() }

// cycle reads and publishes. A mirror that was truncated meanwhile is an error; the engine
// replaces its file.
func (p *Poller) cycle() error {
	err := shm.Guard(func() error { return p.opts.Plan.Cycle(p.opts.Writer, shm.Now()) })
	if errors.Is(err, shm.ErrTruncated) && p.opts.Writer.AbandonCycle() { // a fault on the mirror ended it
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

// errDamaged: the cycle could not be published. It does not mean that a source failed.
var errDamaged = errors.New("the mirror is damaged")

// logChange logs when the error of a cycle begins, changes and ends.
func (p *Poller) logChange(err error) {
	was := p.failing.Load()
	switch {
	case err == nil && was == nil:
	case errors.Is(err, errDamaged): // the engine replaces the file, and raises a condition
	case err == nil:
		p.failing.Store(nil)
		p.opts.Logger.Info("reading counters again")
	case was == nil || *was != err.Error():
		text := err.Error()
		p.failing.Store(&text)
		p.opts.Logger.Error("reading counters", "err", err)
	}
}

// Conditions lists sources that cannot be read, and cycles that take too long.
func (p *Poller) Conditions() []dataplane.Condition {
	var out []dataplane.Condition
	if text := p.failing.Load(); text != nil {
		out = append(out, dataplane.Condition{
			Code:     dataplane.CodeSourceUnreadable,
			Severity: dataplane.High,
			Object:   "poller",
			Text:     *text,
			Fix:      "restart the instance: totals go on; report the text if it happens again",
		})
	}
	if p.late.Load() {
		out = append(out, dataplane.Condition{
			Code:     dataplane.CodePollOverrun,
			Severity: dataplane.Low,
			Object:   "poller",
			Text:     "poll cycles take longer than their period; values are older than configured",
			Fix:      "raise poll.period, then: flowtally apply; or give the process more CPU",
		})
	}
	return out
}
