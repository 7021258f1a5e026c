package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// alteration is the change of one flow in its place: c becomes to.
type alteration struct {
	c      *flowState
	to     backend.Placed
	rules  bool // its rules change
	relist bool // it gets a new entry in the mirror
	anew   bool // it will count other packets, so its total begins at 0

	of     *flowState        // a state for to, made by newFlow: which backends may count it
	in     backend.Installed // its slot in XDP after the change; set by prepare
	at     backend.Moment    // set with in: outages after this moment concern the new total
	was    flowState         // a copy of c before the change, for undo; set by prepare
	handle shm.Handle        // of the new entry
	former *flowState        // in an undo: c before the change that is undone
}

// alterations changes flows in their places, all or none. Callers hold Engine.ctl, and call prepare, then finish, then end or undo.
// Backends may refuse in prepare alone.
type alterations struct {
	e    *Engine
	list []*alteration
	ends []func(keep bool) error

	// The same call adds and removes these flows. XDP exchanges their rules together with those of list.
	add, remove []*flowState
	installed   map[*flowState]backend.Installed // flows of add outside the stack whose rules XDP has by now
	left        []*flowState                     // flows of remove that have lost their rules in the exchange
	restore     []*flowState                     // in an undo: the flows that had lost them

	moved []*flowState // flows that prepare took out of hardware
	lent  []*flowState // flows for hardware alone, which XDP counts until the change ends
	late  []*flowState // flows of add that may enter hardware only after the change
	done  bool         // finish has given the flows their new fields
}

var errChanging = errors.New("it, or a flow that wins over it, is being changed")

// prepare takes the flows whose rules change out of hardware, with the flows that depend on them, and exchanges the rules in XDP.
// All totals go on.
func (a *alterations) prepare(ctx context.Context) error {
	err := a.e.ctl.Outside(func() error {
		for _, x := range a.list {
			if err := x.check(a.e); err != nil {
				return fmt.Errorf("flow %q: changing it: %w", x.c.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := a.moveToShadows(ctx); err != nil {
		return err
	}
	return a.alterRules(ctx)
}

// check returns why a flow cannot be changed in its place.
func (x *alteration) check(e *Engine) error {
	x.of = e.placement.newFlow(x.to)
	c, of := x.c, x.of
	switch {
	case c.offload == nil:
		if open := e.placement.choices.of(x.to.Flow).open; of.offload != nil || !slices.Contains(open, c.backend) {
			return fmt.Errorf("%w: %s counts it, which backend %q does not allow; remove it in one call and add it in the next",
				dataplane.ErrUnplaced, c.backend.Name(), x.to.Backend)
		}
	case of.offload == nil:
		return fmt.Errorf("%w: backend %q does not count it here; remove it in one call and add it in the next", dataplane.ErrUnplaced, x.to.Backend)
	case x.anew && c.gone != nil:
		return fmt.Errorf("%w: its device is lost: %w; remove it in one call and add it in the next", dataplane.ErrUnplaced, c.gone)
	case x.rules && !c.hasShadow:
		return fmt.Errorf("%w: XDP, which counts it while its device changes, has no rules of it; remove it in one call and add it in the next", dataplane.ErrUnplaced)
	}
	return nil
}

// finish makes the mirror and the engine agree with the new rules, and lets flows back into hardware. After an error the flows are
// as prepare left them. unplaced are added flows that only hardware may count and that it has refused: a degraded change goes on
// without them.
func (a *alterations) finish(ctx context.Context) (unplaced map[*flowState]error, err error) {
	if len(a.list) == 0 {
		a.e.arranger.out = nil
		return nil, nil
	}
	if err := a.relist(); err != nil {
		return nil, err
	}
	a.enact()
	a.done = true
	if err := a.arrange(ctx); err != nil {
		return nil, err
	}

	unplaced = make(map[*flowState]error)
	for _, c := range a.affected() {
		if err := c.uncountable(""); err != nil && !c.offloaded && c.gone == nil {
			return nil, fmt.Errorf("flow %q: %w", c.Name, err)
		}
		if c.allowsSoftware || c.offloaded || c.gone != nil {
			continue
		}
		err := fmt.Errorf("flow %q: %w", c.Name, dataplane.ErrUnplaced)
		for _, r := range c.rejected {
			err = fmt.Errorf("%w: %s: %s", err, r.Backend, r.Reason)
		}
		if !slices.Contains(a.late, c) || !a.e.refused.lenient(ctx, err) {
			return nil, err
		}
		unplaced[c] = err
	}
	return unplaced, nil
}

// affected returns the flows that may have to move.
func (a *alterations) affected() []*flowState {
	removed := make(map[*flowState]bool, len(a.remove))
	for _, c := range a.remove {
		removed[c] = true
	}
	out := slices.DeleteFunc(slices.Concat(a.moved, a.late), func(c *flowState) bool { return a.e.flows[c.Name] != c || removed[c] })
	for _, x := range a.list {
		if x.c.offload != nil {
			out = append(out, x.c)
		}
	}
	return out
}

// arrange lets the flows that were kept out of hardware go back there.
func (a *alterations) arrange(ctx context.Context) error {
	for _, c := range a.lent {
		c.allowsSoftware = false
	}
	a.lent = nil
	if a.e.arranger.out = nil; a.done && a.e.mover.stack != nil {
		a.e.arranger.out = make(map[*flowState]error, len(a.remove))
		a.keepOutRemoved()
	}
	seeds := a.affected()
	if len(seeds) == 0 {
		return nil
	}
	return a.e.arranger.arrange(ctx, nil, append(seeds, losers(seeds)...))
}

// end frees the rules and slots that only the flows from before the change needed.
func (a *alterations) end() {
	for _, end := range a.ends {
		if err := end(true); err != nil {
			a.e.log.Error("giving up rules and counters that flows had before a change", "err", err)
		}
	}
}

// undo makes the flows what they were before.
func (a *alterations) undo(ctx context.Context) error {
	if !a.done {
		var errs []error
		for _, end := range slices.Backward(a.ends) {
			errs = append(errs, end(false))
		}
		return errors.Join(append(errs, a.arrange(ctx))...)
	}
	back := &alterations{e: a.e, restore: a.left}
	for _, x := range a.list {
		y := &alteration{c: x.c, to: x.was.Placed, rules: x.rules, relist: x.relist, anew: x.anew}
		if x.anew {
			y.former = &x.was
		}
		back.list = append(back.list, y)
	}
	err := back.prepare(ctx)
	if err == nil {
		_, err = back.finish(ctx)
	}
	if err != nil && !back.done { // the flows stay changed
		err = errors.Join(err, back.undo(ctx))
	}
	if err == nil || back.done { // after an error behind done, the flows are as before, but one of them found no place
		back.end()
		a.end()
	}
	if err != nil {
		return fmt.Errorf("changing flows back: %w", err)
	}
	return nil
}
