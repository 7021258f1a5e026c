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
	// conditionWindow is the number of cycles after which the poller judges how many were late.
	conditionWindow = 128
	// beatPeriod is the longest time between two heartbeats. Longer poll periods have heartbeats in between. It is half
	// of the heartbeat period that the mirror promises. Readers call a writer dead after two such periods without a beat.
	beatPeriod = 250 * time.Millisecond
)

// Options of a Poller.
type Options struct {
	Plan   *Plan
	Writer *shm.Writer
	Config dataplane.PollConfig
	Logger *slog.Logger
	// Idle is called with true when cycles slow down because nothing changes, and with false when they speed up again. It
	// may be nil.
	Idle func(idle bool)
	// Ticker ticks for the cycles. nil means tick.New. Run closes it.
	Ticker *tick.Ticker
}

// Poller runs the cycles of a plan.
type Poller struct {
	opts    Options
	ticker  *tick.Ticker
	periods atomic.Pointer[periods]

	cycles  atomic.Uint64
	failing atomic.Pointer[string] // error text of the last cycle; nil: it succeeded
	late    atomic.Bool            // more than one in eight cycles of the last window were late
	idle    bool                   // the last argument of Options.Idle; only Run's goroutine uses it
}

// New returns a poller that does not run yet. The caller must call Run, which closes the ticker.
func New(o Options) *Poller {
	p := &Poller{opts: o, ticker: o.Ticker}
	if p.ticker == nil {
		p.ticker = tick.New()
	}
	o.Plan.onAdded(p.ticker.Kick)
	p.SetPeriods(o.Config.Period, o.Config.IdlePeriod)
	return p
}

// SetPeriods changes the poll period and the idle period from the next cycle on; 0 means the default. It does nothing to a
// busy poller, which polls without pause. Any goroutine may call it.
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

// runPeriodic runs a cycle in each period, and heartbeats in between if the period is longer than beatPeriod. The ticker
// drops ticks that nobody waited for: after a late cycle the next one comes at its planned time, not in a burst.
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

// awaitCycle beats until the next cycle is due. It returns false if ctx ended instead.
func (p *Poller) awaitCycle(ctx context.Context, period time.Duration) bool {
	for beats := beatsIn(period); beats > 0; beats-- {
		p.ticker.Wait()
		if ctx.Err() != nil {
			return false
		}
		if p.pace() != period { // begin the other period at once, with a cycle
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

// setPace returns the current period. If it differs from was, setPace resets the ticker, and tells readers before the first
// pause of the new length, as shm.Writer.SetPollPeriod requires.
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

// tell stores the period in the mirror, for readers.
func (p *Poller) tell(period time.Duration) {
	if err := p.opts.Writer.SetPollPeriod(period); err != nil && !errors.Is(err, shm.ErrTruncated) { // if the file was cut short, the engine makes the mirror anew
		p.opts.Logger.Warn("telling readers the poll period", "err", err)
	}
}

// runBusy runs one cycle after another, on the configured CPU.
func (p *Poller) runBusy(ctx context.Context) {
	p.tell(0)
	runtime.LockOSThread()
	// Never unlock the thread: Go then ends it with the goroutine, and no other goroutine inherits its affinity.
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

// cycle runs a cycle of the plan. If the mirror's file was cut short, the cycle faults, and the error wraps errDamaged: the
// engine then makes the mirror anew.
func (p *Poller) cycle() error {
	err := shm.Guard(func() error { return p.opts.Plan.Cycle(p.opts.Writer, shm.Now()) })
	if errors.Is(err, shm.ErrTruncated) && p.opts.Writer.AbandonCycle() { // true: the fault ended the cycle early
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

// errDamaged means that the mirror could not be written. No source failed.
var errDamaged = errors.New("the mirror is damaged")

// logChange logs when the error of a cycle begins, changes and ends.
func (p *Poller) logChange(err error) {
	was := p.failing.Load()
	switch {
	case err == nil && was == nil:
	case errors.Is(err, errDamaged): // the engine makes the mirror anew, and raises a condition
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
