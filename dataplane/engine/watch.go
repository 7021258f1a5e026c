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

// healthPeriod is how often we look for conditions that nothing signals.
const healthPeriod = time.Second

// answerPatience is how long the watcher waits for a backend to list its conditions, and for a change of the flows to let it repair
// the mirror.
const answerPatience = healthPeriod / 2

// watcher updates the conditions, moves flows when links or devices have changed, and repairs the mirror. It has two goroutines. One
// moves flows whenever ctl is free, and may wait for the kernel or a device. The other does the rest, and waits for neither.
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

// moveFlows moves flows until ctx ends: after each signal of moved, and at each tick while some flow waits. It signals changed when
// conditions may have changed. Trying a refused flow may attach programs and detach them again, which is a change of its own. So it
// tries them at most once a tick.
func (w *watcher) moveFlows(ctx context.Context, moved <-chan struct{}, changed chan<- struct{}) {
	tick := time.NewTicker(healthPeriod)
	defer tick.Stop()
	stale := false // sources may differ from the mirror
	ticked := true // there was a tick since we last tried the refused flows
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
				if w.ctl.TryLock() { // do not wait: Close holds ctl while it waits for this goroutine
					w.noteChange(false) // no change is under way, and the caller of the last one knows its end by now
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

// repairMirror makes the mirror again if it is damaged. If a change of the flows is under way, it waits for a pause between two steps,
// for answerPatience at most. If there is none, the next call repairs.
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

// signal sends to a channel with room for one signal, unless one is waiting there.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// audit runs the audit, unless a control call is under way.
func (w *watcher) audit() {
	if !w.placement.audit || !w.ctl.TryLock() {
		return
	}
	defer w.ctl.Unlock()
	differ := w.auditor.audit(time.Now())
	w.differ.Store(&differ)
}

// refreshSources moves flows after links or devices have changed, and writes their sources to the mirror. If a control call is under
// way, it only declares lost hooks, and returns false: it must not wait for ctl, because Close holds ctl while it waits for this
// goroutine. With retry it also tries the refused flows again. Otherwise the next tick does.
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

// declareAmid declares losses of hooks while a control call is under way. Such a call may take minutes, and readers see the totals grow
// since the hooks are back, so the losses must not wait for its end. If the call lets nobody in for answerPatience, we try again later.
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

// arrange moves flows to the best sources that they can have now. Callers hold ctl, as for showSources.
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

// hasWaiting reports whether a flow waits for a source, which may exist by now.
func (w *watcher) hasWaiting() bool {
	if !w.ctl.TryLock() {
		return false
	}
	defer w.ctl.Unlock()
	return w.placement.arranger.waiting || w.refused.again && len(w.refused.flows) > 0
}
