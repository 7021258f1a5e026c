package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// healthPeriod is how often conditions that nobody signals are looked at.
const healthPeriod = time.Second

// watch keeps the list of conditions and tells receivers of events what came
// and went.
func (e *Engine) watch(ctx context.Context) {
	tick := time.NewTicker(healthPeriod)
	defer tick.Stop()
	changed := make(chan struct{}, 1)
	for _, b := range e.backends {
		if c := b.Changed(); c != nil {
			e.stopped.Go(func() { forward(ctx, c, changed) })
		}
	}
	e.stopped.Go(func() { forward(ctx, e.pairs.Changed(), changed) })
	moved := false // sources may differ from what the mirror shows
	for {
		if moved {
			moved = !e.refresh(e.life)
		}
		e.examine()
		for waiting := true; waiting; {
			var soon <-chan time.Time
			if e.catchUp() {
				soon = time.After(catchUpPeriod)
			}
			waiting = false
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if e.ctl.TryLock() { // Close holds it while it waits for this goroutine
					e.keepMirror()
					e.ctl.Unlock()
				}
				moved = moved || e.tryAgain()
			case <-changed:
				moved = true
			case <-soon:
				waiting = true
			}
		}
	}
}

func forward(ctx context.Context, from <-chan struct{}, to chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-from:
			select {
			case to <- struct{}{}:
			default: // one is pending: the look that it causes is still to come
			}
		}
	}
}

// examine compares what is wrong now with what was.
func (e *Engine) examine() {
	now := time.Now()
	current := make(map[string]dataplane.Condition)
	for _, c := range e.collect(now) {
		current[string(c.Code)+"\x00"+c.Object] = c
	}
	// Close holds ctl while it waits for this goroutine, so this must not wait for ctl.
	if !e.ctl.TryLock() {
		return
	}
	defer e.ctl.Unlock()
	for _, c := range e.audit(now) {
		current[string(c.Code)+"\x00"+c.Object] = c
	}
	e.raisedMu.Lock()
	defer e.raisedMu.Unlock()
	for k, c := range current {
		if old, ok := e.raised[k]; ok {
			c.Since = old.Since
			e.raised[k] = c
			continue
		}
		e.raised[k] = c
		e.log.Warn("condition raised", "code", c.Code, "object", c.Object, "text", c.Text, "fix", c.Fix)
		e.events.send(dataplane.ConditionRaised, c.Object, string(c.Code)+": "+c.Text)
	}
	for k, c := range e.raised {
		if _, ok := current[k]; !ok {
			delete(e.raised, k)
			e.log.Info("condition gone", "code", c.Code, "object", c.Object)
			e.events.send(dataplane.ConditionGone, c.Object, string(c.Code))
		}
	}
}

// refresh brings flows to where they are to be counted and shows readers of the
// mirror where that is, after links or devices changed. It answers false when a control
// call is under way: Close waits for this goroutine with ctl held, so it must not wait
// for ctl.
func (e *Engine) refresh(ctx context.Context) bool {
	if !e.ctl.TryLock() {
		return false
	}
	defer e.ctl.Unlock()
	e.enableOffload()
	if err := e.arrange(ctx, nil, nil); err != nil {
		e.log.Error("arranging flows anew", "err", err)
	}
	for _, c := range e.flows {
		if err := e.follow(c); err != nil {
			e.log.Error("showing a flow's source in the mirror", "flow", c.Name, "err", err)
		}
	}
	return true
}

// tryAgain says whether flows wait for a source that may be there by now.
func (e *Engine) tryAgain() bool {
	if !e.ctl.TryLock() {
		return false
	}
	defer e.ctl.Unlock()
	return e.waiting
}

// follow notes what became of a flow's source where it is.
func (e *Engine) follow(c *counted) error {
	lost := c.offload != nil && c.gone != nil
	if u, ok := c.backend.(backend.SoftwareBackend); ok {
		if now := u.Epoch(c.Placed); now != 0 && now != c.epoch {
			gap := c.epoch != 0
			c.epoch = now
			if gap { // the hook was lost and taken again in between
				c.source = c.backend.Source(c.Placed)
				e.tell(c, "its hook was lost for a while", dataplane.Uncounted{Unknown: true})
				return e.settle(c, c.past.Cookie, c.base, true)
			}
		}
	} else if n := e.resets(c); c.offload != nil && !lost && n != c.resets {
		c.resets = n
		e.noteNeedsAlign(c)
		c.past.Discontinuities++
		e.tell(c, "a counter of its device began anew", dataplane.Uncounted{Unknown: true})
		return e.spared(e.writer.SetContinuity(c.handle, c.past))
	} else if c.offload != nil && !lost && c.epoch != 0 && !e.whole(c) {
		// The shadow has missed packets: it cannot say any more what the total is.
		if err := e.settleOver(c); err != nil {
			return err
		}
	}
	if lost {
		return nil
	}
	if err := e.followApart(c); err != nil {
		return err
	}
	src := e.sourceOf(c)
	if src.Equal(c.source) {
		return nil
	}
	c.source = src
	e.events.send(dataplane.SourceChanged, c.Name, src.String())
	return e.show(c)
}

// resets is how often the hardware that counts a flow has begun anew.
func (e *Engine) resets(c *counted) uint64 {
	if c.offload == nil || !c.offloaded {
		return 0
	}
	return e.stack.over.Resets(c.Placed)
}

func (e *Engine) collect(now time.Time) []dataplane.Condition {
	out := append(e.poller.Conditions(), e.pairs.Conditions()...)
	out = append(out, e.mirror.conditions(e.cfg.Mirror.Path, e.writer)...)
	out = append(out, e.guard.Conditions()...)
	for _, b := range e.backends {
		out = append(out, b.Conditions()...)
	}
	for i := range out {
		if out[i].Since.IsZero() {
			out[i].Since = now
		}
	}
	return out
}

// Conditions implements dataplane.Service.
func (e *Engine) Conditions(context.Context) ([]dataplane.Condition, error) {
	if e.closed() {
		return nil, dataplane.ErrClosed
	}
	e.raisedMu.Lock()
	defer e.raisedMu.Unlock()
	out := make([]dataplane.Condition, 0, len(e.raised))
	for _, c := range e.raised {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b dataplane.Condition) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Object, b.Object))
	})
	return out, nil
}
