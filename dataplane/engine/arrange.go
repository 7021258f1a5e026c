package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
)

// stack is an overlay and what lies behind it: the flows that one of the two is to
// count are placed as one set. Without an overlay there is no stack.
type stack struct {
	over  placer
	under carrier // nil: what the overlay cannot count is not counted
	audit bool    // entries of the overlay's flows are served too
}

// layered is what the stack knows of a flow.
type layered struct {
	mayOver, mayUnder bool      // as the flow and the configuration say
	over, under       Installed // where hasOver, hasUnder
	hasOver, hasUnder bool
	gone              error                 // the overlay counts it no more, and nothing else does yet
	refusals          []dataplane.Rejection // of backends that are not open

	above  []*counted // flows that win over it on packets that both match
	placed []Placed   // the same, as the overlay is asked about them
	// The truth that the entry knows: the total is line and what the entry has
	// counted, as long as its stretch is the same and not 0.
	line    Pair
	stretch uint64
}

// ahead says whether a wins over b on packets that both match.
func (c *counted) ahead(of *counted) bool {
	return cmp.Or(cmp.Compare(c.Priority, of.Priority), cmp.Compare(c.Order, of.Order)) < 0
}

func byPrecedence(a, b *counted) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Order, b.Order))
}

// relate notes who wins over whom between fresh flows and those that are there.
func relate(there, fresh []*counted) {
	for i, f := range fresh {
		for _, o := range append(there, fresh[:i]...) {
			if !overlap(&f.Flow, &o.Flow) {
				continue
			}
			if o.ahead(f) {
				f.rest(o)
			} else {
				o.rest(f)
			}
		}
	}
}

// rest puts c below another flow.
func (c *counted) rest(on *counted) {
	c.above = append(c.above, on)
	c.placed = append(c.placed, on.Placed)
}

// unrelate forgets flows that are gone.
func unrelate(there []*counted, gone map[*counted]bool) {
	for _, c := range there {
		n := len(c.above)
		c.above = slices.DeleteFunc(c.above, func(o *counted) bool { return gone[o] })
		if len(c.above) == n {
			continue
		}
		c.placed = c.placed[:0]
		for _, o := range c.above {
			c.placed = append(c.placed, o.Placed)
		}
	}
}

// assign says which of all, in precedence order, the overlay is to count, and why not
// the others. A flow goes there when it fits and everything that wins over it is there:
// what lies behind cannot take a packet back from the overlay. As whoever is in
// the way stands higher, one pass from the top finds the largest such set.
func (s *stack) assign(all []*counted, refused map[*counted]error) (over map[*counted]bool, why map[*counted]error) {
	over, why = make(map[*counted]bool, len(all)), make(map[*counted]error)
	for _, c := range all {
		if !c.mayOver {
			continue
		}
		err := refused[c]
		for _, o := range c.above {
			if err == nil && !over[o] {
				err = fmt.Errorf("flow %q wins over it on packets that match both, and is not counted by %s", o.Name, s.over.Name())
			}
		}
		if err == nil {
			err = s.over.Fits(c.Flow, c.placed)
		}
		if err != nil {
			why[c] = err
		} else {
			over[c] = true
		}
	}
	return over, why
}

// possible says why the flows cannot be counted as assigned: one has nowhere to go,
// or an entry would take packets that a flow of the overlay counts.
func (s *stack) possible(all []*counted, over map[*counted]bool, why map[*counted]error) error {
	var errs []error
	for _, c := range all {
		switch {
		case over[c]:
		case c.mayUnder && c.hasUnder:
			for _, o := range c.above {
				if over[o] && !o.hasUnder {
					errs = append(errs, fmt.Errorf("flow %q: %s has no entry for flow %q, which wins over it and is counted by %s: %w",
						c.Name, s.under.Name(), o.Name, s.over.Name(), dataplane.ErrUnplaced))
				}
			}
		case c.gone == nil: // one that is waits for its device
			err := fmt.Errorf("flow %q: %w", c.Name, dataplane.ErrUnplaced)
			for _, r := range s.reasons(c, why[c]) {
				err = fmt.Errorf("%w: %s: %s", err, r.Backend, r.Reason)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// reasons are why the backends that do not count a flow do not.
func (s *stack) reasons(c *counted, notOver error) []dataplane.Rejection {
	out := slices.Clone(c.refusals)
	if notOver != nil {
		out = append(out, dataplane.Rejection{Backend: s.over.Name(), Reason: notOver.Error()})
	}
	return out
}

// layeredFlows are the flows of the stack, those that win first. It is called with ctl held.
func (e *Engine) layeredFlows() []*counted {
	var all []*counted
	for _, c := range e.flows {
		if c.layered != nil {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, byPrecedence)
	return all
}

// arrange brings every flow of the stack to where it is to be counted: fresh ones,
// which have entries by now, and those that are there. Flows leave the overlay before
// entries that displace them are served, the lowest first, and enter it from the top,
// so that at every instant whoever is in the overlay has everything above it there. It is
// called with ctl held. An error is about fresh flows; the others are where they can be.
func (e *Engine) arrange(ctx context.Context, fresh []*counted) error {
	s := e.stack
	if s == nil {
		return nil
	}
	all := append(e.layeredFlows(), fresh...)
	slices.SortFunc(all, byPrecedence)
	e.noteGone(all)
	refused := make(map[*counted]error)
	for {
		over, why := s.assign(all, refused)
		if err := s.possible(all, over, why); err != nil && len(fresh) > 0 {
			return err
		}
		displaced := e.leave(ctx, all, over, why)
		if err := e.serveFresh(ctx, fresh, over, why, displaced); err != nil {
			return err
		}
		failed, err := e.enter(ctx, all, over)
		if err != nil || len(failed) == 0 {
			return err
		}
		for c, err := range failed {
			refused[c] = err
		}
	}
}

// noteGone takes note of flows that the overlay has lost.
func (e *Engine) noteGone(all []*counted) {
	gone := e.stack.over.Gone()
	if len(gone) == 0 {
		return
	}
	for _, c := range all {
		if err := gone[c.Name]; err != nil && c.hasOver {
			c.gone = err
		}
	}
}

// leave moves to the entries what the overlay is not to count any more, or cannot;
// displaced says whether that was any. What has no entry to go to waits for its device.
func (e *Engine) leave(ctx context.Context, all []*counted, over map[*counted]bool, why map[*counted]error) (displaced bool) {
	for _, c := range slices.Backward(all) {
		if !c.hasOver || over[c] && c.gone == nil {
			continue
		}
		reason := c.gone
		if reason == nil {
			reason = why[c]
		}
		err := dataplane.ErrUnplaced
		if c.mayUnder && c.hasUnder {
			err = e.toUnder(ctx, c, reason)
		}
		if err == nil {
			c.rejected = e.stack.reasons(c, reason)
			displaced = true
		} else if c.gone != nil {
			e.strand(ctx, c, reason)
		} else {
			e.log.Error("moving a flow that does not fit any more", "flow", c.Name, "reason", reason, "err", err)
		}
	}
	return displaced
}

// serveFresh publishes the fresh flows that the overlay does not count.
func (e *Engine) serveFresh(ctx context.Context, fresh []*counted, over map[*counted]bool, why map[*counted]error, displaced bool) error {
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
		return fmt.Errorf("placing %s: %w: %w", describe(placedOf(mine)), dataplane.ErrUnplaced, err)
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
func (e *Engine) enter(ctx context.Context, all []*counted, over map[*counted]bool) (failed map[*counted]error, err error) {
	var list []*counted
	for _, c := range all {
		if over[c] && !c.hasOver {
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
	var off []Placed
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
			c.over, c.hasOver = in[i], true
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
			failed[c] = fmt.Errorf("a flow that wins over it was refused: %w", err)
		} else if err := take(list[i : i+1]); err != nil {
			failed[c] = err
		}
	}
	return failed
}
