package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// stackFlows are the flows of the stack, those that win first. It is called with ctl held.
func (e *Engine) stackFlows() []*counted {
	if e.stack == nil {
		return nil
	}
	var all []*counted
	for _, c := range e.flows {
		if c.offload != nil {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, byPrecedence)
	return all
}

// arrange brings flows of the stack to where they are to be counted: fresh ones,
// which have shadows by now, seeds, and what depends on these; all where seeds is nil, or where
// the last arrange could not do all that it had to. Flows leave the overlay before
// those that displace them are served, the lowest first, and enter it from the top,
// so that at every instant the overlay counts all flows that win over one that it counts. It is
// called with ctl held. An error is about fresh flows; the others are where they can be.
func (e *Engine) arrange(ctx context.Context, fresh, seeds []*counted) (err error) {
	s := e.stack
	if s == nil {
		return nil
	}
	gone := s.over.Gone()
	every := seeds == nil || e.unsettled || len(gone) > 0
	var all []*counted
	if every {
		all = append(e.stackFlows(), fresh...)
		slices.SortFunc(all, byPrecedence)
		s.noteGone(all, gone)
		e.waiting = false
	}
	var over assignment
	defer func() { e.unsettled = err != nil || !settled(all, over) }()
	refused := make(map[*counted]error)
	left := 0 // flows that made room
	for {
		// What a device was not asked to the end it has not refused: nobody makes room for
		// flows whose caller has gone.
		if err := ctx.Err(); err != nil && len(fresh) > 0 {
			return err
		}
		var why map[*counted]error
		if every {
			over, why = s.assign(all, refused)
		} else {
			all, over, why = s.reassign(seeds, refused)
			seeds = all
		}
		if err := s.possible(all, over, why); err != nil && len(fresh) > 0 {
			return err
		}
		displaced := e.leave(ctx, all, over, why)
		left += displaced
		if err := e.serveFresh(ctx, fresh, over, why, displaced > 0); err != nil {
			return err
		}
		failed, err := e.enter(ctx, all, over)
		if err != nil {
			return err
		}
		for c, err := range failed {
			if !errors.Is(err, errBlocked) {
				refused[c] = err
				s.denied.add(c)
			}
		}
		if len(failed) > 0 {
			continue
		}
		s.explain(all, why)
		again := e.roomFor(left)
		if every && e.reunite(ctx, all) > 0 {
			continue // flows below them may follow
		}
		if every || len(again) == 0 {
			return nil
		}
		left = 0
		seeds = append(seeds, again...)
	}
}

// settled says whether every flow is where it was to go, and none waits for its device.
func settled(all []*counted, over assignment) bool {
	return !slices.ContainsFunc(all, func(c *counted) bool { return c.gone != nil || over.has(c) != c.offloaded })
}

// roomFor takes n flows that the device refused before, which may find room now.
func (e *Engine) roomFor(n int) []*counted {
	return e.stack.denied.take(n, func(c *counted) bool { return e.flows[c.Name] == c && !c.offloaded })
}

// noteGone takes note of flows that the overlay has lost, by name.
func (s *stack) noteGone(all []*counted, gone map[string]error) {
	if len(gone) == 0 {
		return
	}
	for _, c := range all {
		if err := gone[c.Name]; err != nil && c.offloaded {
			c.gone = err
			s.noteAway(c)
		}
	}
}

// leave moves flows to their shadows: those that the overlay must not count any more, and those that it has lost.
// displaced is the number of flows that moved. A lost flow without a usable shadow waits for its device.
func (e *Engine) leave(ctx context.Context, all []*counted, over assignment, why map[*counted]error) (displaced int) {
	shown := false
	e.apart(ctx, all, over)
	for _, c := range slices.Backward(all) {
		waits := !c.offloaded && c.gone != nil // for its device, and perhaps for its shadow
		if over[c] && (waits || c.gone == nil) || !c.offloaded && !waits {
			continue
		}
		reason := c.gone
		if reason == nil {
			reason = why[c]
		}
		if over[c] && c.losesPart() {
			err := e.divide(c, reason)
			if err == nil {
				displaced++
				continue
			}
			e.log.Warn("a flow leaves the devices that are left, too", "flow", c.Name, "err", err)
		}
		err := dataplane.ErrUnplaced
		if c.mayUnder && c.hasUnder {
			err = e.toUnder(ctx, c, reason)
		}
		if err == nil {
			c.rejected = e.stack.reasons(c, reason)
			displaced++
		} else if waits {
			e.log.Debug("a flow without its device still has no other source", "flow", c.Name, "err", err)
			e.waiting = e.waiting || c.mayUnder
		} else if errors.Is(reason, backend.ErrUnread) {
			// It has nowhere to go. Its rules count on, and are read when that succeeds again: taking
			// them out would lose what passes until then.
			c.gone = nil
			e.waiting = e.waiting || c.mayUnder
		} else if c.gone != nil {
			if !shown { // the last samples: nobody reads them again
				shown = true
				e.poller.Poll()
			}
			e.strand(ctx, c, reason)
			e.waiting = e.waiting || c.mayUnder
		} else {
			e.log.Error("moving a flow that does not fit any more", "flow", c.Name, "reason", reason, "err", err)
		}
	}
	return displaced
}

// serveFresh publishes the fresh flows that the overlay does not count.
func (e *Engine) serveFresh(ctx context.Context, fresh []*counted, over assignment, why map[*counted]error, displaced bool) error {
	var mine []*counted
	for _, c := range fresh {
		if !over[c] && !c.published() {
			mine = append(mine, c)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	if err := e.stack.under.Serve(ctx, placedOf(mine), true); err != nil {
		return fmt.Errorf("placing %s: %w: %w", backend.Describe(placedOf(mine)), dataplane.ErrUnplaced, err)
	}
	for _, c := range mine {
		c.rejected = e.stack.reasons(c, why[c])
		if err := e.publishUnder(c, displaced); err != nil {
			return fmt.Errorf("flow %q: %w", c.Name, err)
		}
	}
	return nil
}

// enter moves to the overlay what it is to count and does not yet, from the top.
// failed are those that it refused after all.
func (e *Engine) enter(ctx context.Context, all []*counted, over assignment) (failed map[*counted]error, err error) {
	var list []*counted
	for _, c := range all {
		if over[c] && !c.offloaded {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	before, err := e.beside(ctx, list)
	if err != nil {
		return nil, err
	}
	failed = e.stack.install(ctx, list)
	var off []backend.Placed
	for i, c := range list {
		switch {
		case failed[c] != nil:
			continue
		case c.published():
			err = e.toOver(c, before[i])
		default:
			err = e.publishOver(c, before[i])
		}
		if err != nil {
			return nil, fmt.Errorf("flow %q: %w", c.Name, err)
		}
		c.rejected = e.stack.reasons(c, nil)
		if c.hasUnder && (!e.stack.audit || c.over.Takes) {
			off = append(off, c.Placed)
		}
	}
	if len(off) > 0 {
		if err := e.stack.under.Serve(ctx, off, false); err != nil {
			e.log.Warn("letting go of hooks that nobody needs", "err", err)
		}
	}
	for _, c := range list {
		if failed[c] == nil {
			err = errors.Join(err, e.settleOver(c))
		}
	}
	return failed, err
}

// errBlocked says that the overlay was not asked for a flow, because it refused another that wins over that flow.
var errBlocked = errors.New("a flow that wins over it was refused")

// install asks the overlay for the whole list, then one by one, so that one that it
// refuses does not keep the others out.
func (s *stack) install(ctx context.Context, list []*counted) (failed map[*counted]error) {
	failed = make(map[*counted]error)
	take := func(part []*counted) error {
		in, err := s.over.Install(ctx, placedOf(part))
		if err != nil {
			return err
		}
		for i, c := range part {
			c.over, c.offloaded, c.resets = in[i], true, 0
		}
		return nil
	}
	err := take(list)
	if err == nil {
		return failed
	}
	if len(list) == 1 {
		failed[list[0]] = err
		return failed
	}
	for i, c := range list {
		if slices.ContainsFunc(c.above, func(o *counted) bool { return failed[o] != nil }) {
			failed[c] = errBlocked
		} else if err := take(list[i : i+1]); err != nil {
			failed[c] = err
		}
	}
	return failed
}
