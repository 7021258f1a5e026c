package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/control"
	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/engine/words"
)

// healthPeriod is how often conditions that have no signal are updated.
const healthPeriod = time.Second

// answerPatience is how long the watcher waits for a backend to tell its conditions, and for a change of the flows to let it
// repair the mirror.
const answerPatience = healthPeriod / 2

// watcher updates the conditions, moves flows after changes of links and devices, and repairs the mirror, until the
// instance ends. One goroutine moves flows when it finds ctl free, and may then wait for a kernel or a device. Another one
// does the rest, and waits for neither.
type watcher struct {
	ctl        control.Lock
	log        *slog.Logger
	backends   []backend.Backend
	pairs      *queuepair.Set
	words      *words.Set
	guard      *trial.Guard
	unconfined []dataplane.Condition // of the process
	poller     *poll.Poller
	flows      map[string]*flowState // Engine.flows
	refused    *refusals
	inForce    *inForce
	retry      func(context.Context) // retryRefused
	noteChange func(underWay bool)   // Engine.noteChange
	mover      *mover
	placement  *placement
	auditor    *auditor
	health     *health
	life       context.Context // of control calls
	stopped    *sync.WaitGroup

	differ atomic.Pointer[[]dataplane.Condition] // what the last audit has found
	asked  []asked                               // by backend
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	moved, changed := make(chan struct{}, 1), make(chan struct{}, 1)
	for _, b := range w.backends {
		if c := b.Changed(); c != nil {
			w.stopped.Go(func() { forward(ctx, c, moved, changed) })
		}
	}
	w.stopped.Go(func() { forward(ctx, w.pairs.Changed(), moved, changed) })
	w.stopped.Go(func() { w.moveFlows(ctx, moved, changed) })

	tick := time.NewTicker(healthPeriod)
	defer tick.Stop()
	for {
		w.updateConditions()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.repairMirror(ctx)
		case <-changed:
		}
	}
}

// moveFlows moves flows until ctx ends: after a signal of moved, and while some wait. It signals changed when conditions
// may have changed. To try a refused flow may attach programs and detach them again, and so be a change itself: flows are
// tried once between two ticks at most.
func (w *watcher) moveFlows(ctx context.Context, moved <-chan struct{}, changed chan<- struct{}) {
	tick := time.NewTicker(healthPeriod)
	defer tick.Stop()
	stale := false // sources may differ from the mirror
	ticked := true // since refused flows were tried last
	for {
		if stale {
			if w.refreshSources(w.life, ticked) {
				stale, ticked = false, false
			}
			signal(changed)
		}
		w.audit()
		for waiting := true; waiting; {
			var soon <-chan time.Time
			if w.auditor.alignIdle() {
				soon = time.After(alignPeriod)
			}
			waiting = false
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				ticked = true
				if w.ctl.TryLock() { // Close holds it while it waits for this goroutine
					w.noteChange(false) // also the caller of the last change knows its end by now
					w.ctl.Unlock()
				}
				stale = stale || w.hasWaiting()
			case <-moved:
				stale = true
			case <-soon:
				waiting = true
			}
		}
	}
}

// repairMirror makes the mirror anew where it is damaged. A change of the flows lets it in between two steps. If that takes
// longer than answerPatience, the next call repairs.
func (w *watcher) repairMirror(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, answerPatience)
	defer stop()
	if w.ctl.ReadUntil(ctx.Done()) {
		defer w.ctl.EndRead()
		w.mover.catalogue.Repair()
	}
}

func forward(ctx context.Context, from <-chan struct{}, to ...chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-from:
			for _, c := range to {
				signal(c)
			}
		}
	}
}

// signal sends to a channel of one signal.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default: // one is pending
	}
}

// audit notes which flows the audit finds to differ. It does nothing when a control call is under way.
func (w *watcher) audit() {
	if !w.placement.audit || !w.ctl.TryLock() {
		return
	}
	defer w.ctl.Unlock()
	differ := w.auditor.audit(time.Now())
	w.differ.Store(&differ)
}

// refreshSources moves flows after links or devices have changed, and writes their sources to the mirror. It returns false
// without doing so when a control call is under way: Close waits for this goroutine with ctl held, so it must not wait
// for ctl. Losses of hooks are declared all the same. retry: the refused flows are tried again now, else at the next tick.
func (w *watcher) refreshSources(ctx context.Context, retry bool) bool {
	if !w.ctl.TryLock() {
		w.declareAmid(ctx)
		return false
	}
	defer w.ctl.Unlock()
	w.arrange(ctx)
	if retry {
		w.retry(ctx)
	} else {
		w.refused.again = true
	}
	w.showSources()
	return true
}

// declareAmid declares losses of hooks while a control call is under way, which may take minutes. Readers have seen the totals
// grow since the hooks came back, so the losses cannot wait for its end. If the call lets nobody in for answerPatience, the next
// try declares them.
func (w *watcher) declareAmid(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, answerPatience)
	defer stop()
	if !w.ctl.ReadUntil(ctx.Done()) {
		return
	}
	defer w.ctl.EndRead()
	for _, c := range w.flows {
		declared, err := w.mover.declareAmid(c)
		if err != nil {
			w.log.Error("declaring a loss", "flow", c.Name, "err", err)
		}
		if declared {
			ev := moved(c, outage, true)
			ev.Time = time.Now()
			w.health.events.Publish(ev)
		}
	}
}

// arrange moves flows to the sources that they may have now. It is called with ctl held, as is showSources.
func (w *watcher) arrange(ctx context.Context) {
	w.placement.enableOffload()
	if err := w.placement.arranger.arrange(ctx, nil, nil); err != nil {
		w.log.Error("arranging flows", "err", err)
	}
}

// showSources writes the sources and the discontinuities to the mirror.
func (w *watcher) showSources() {
	for _, c := range w.flows {
		w.ctl.Pause()
		if err := w.mover.updateSource(c); err != nil {
			w.log.Error("showing a flow's source in the mirror", "flow", c.Name, "err", err)
		}
	}
}

// hasWaiting reports whether flows wait for a source that may exist by now.
func (w *watcher) hasWaiting() bool {
	if !w.ctl.TryLock() {
		return false
	}
	defer w.ctl.Unlock()
	return w.placement.arranger.waiting || w.refused.again && len(w.refused.flows) > 0
}
