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

// alteration is a flow of the set that becomes another one.
type alteration struct {
	c      *flowState
	to     backend.Placed
	rules  bool // its rules change
	relist bool // its entry in the mirror is made anew
	anew   bool // it counts other packets: its total begins at 0

	of     *flowState        // as newFlow made it: which backends may count it
	in     backend.Installed // set by prepare, where a backend that is no overlay has it
	at     backend.Moment    // set with in, by a SoftwareBackend: later outages are to be declared
	was    flowState         // as prepare left it
	handle shm.Handle        // of the entry that was made anew
	former *flowState        // where an earlier alteration is taken back: c as it was before
}

// alterations are flows that become others, all or none. The calls are prepare, finish, then end or undo. Backends
// may refuse in prepare. Methods are called with Engine.ctl held.
type alterations struct {
	e    *Engine
	list []*alteration
	ends []func(keep bool) error

	// Flows that come and go with the change. Where software has their rules, it exchanges those together with the rules of list.
	add, remove []*flowState
	installed   map[*flowState]backend.Installed // flows of add that are not in the stack, and have their rules
	left        []*flowState                     // flows of remove that have no rules any more
	restore     []*flowState                     // flows that had left in the change that this one takes back

	moved []*flowState // by prepare, out of hardware, with the flows that depend on them
	lent  []*flowState // flows that only hardware may count, and that XDP counts for the moment
	late  []*flowState // flows of add that may go to hardware only behind the change
	done  bool         // by finish
}

var errChanging = errors.New("it, or a flow that wins over it, is being changed")

// prepare moves flows whose rules change out of hardware, with the flows that depend on them, and
// changes the rules of the other backends. The total of each goes on.
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

// finish brings the mirror, the engine and the overlay to where the rules are. An error leaves the flows as prepare did.
// unplaced are added flows that only hardware may count, and that it has refused: a degraded change goes on without them.
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

// affected lists the flows that may have to move.
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

// arrange brings all flows that were moved to where they are to be counted.
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

// end frees the rules and counters that only the flows of before needed.
func (a *alterations) end() {
	for _, end := range a.ends {
		if err := end(true); err != nil {
			a.e.log.Error("giving up rules and counters that flows had before a change", "err", err)
		}
	}
}

// undo brings the flows back.
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
