package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/overlap"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// alterRules changes the rules of each backend, except in hardware.
func (a *alterations) alterRules(ctx context.Context) error {
	by := make(map[backend.Backend][]*alteration)
	for _, x := range a.list {
		b := x.c.backend
		if x.c.offload != nil {
			if b = a.e.mover.stack.software; !x.c.hasShadow {
				continue
			}
		}
		by[b] = append(by[b], x)
	}
	for _, b := range a.e.backends {
		if len(by[b]) == 0 {
			continue
		}
		if err := a.alterIn(ctx, b, by[b]); err != nil {
			return err
		}
	}
	for _, x := range a.list {
		x.keep()
	}
	return nil
}

// keep keeps the flow as it is, for undo.
func (x *alteration) keep() {
	if x.was.shown == nil {
		x.was = *x.c
		x.c.held = true // by x.was
	}
}

// before returns the flow as it was before the change.
func (x *alteration) before() backend.Placed {
	if x.was.shown == nil {
		return x.c.Placed
	}
	return x.was.Placed
}

// alterIn changes the rules of flows in one backend. Software gets the flows that come and go in the same call: between two calls
// packets would count for flows that win in neither set.
func (a *alterations) alterIn(ctx context.Context, b backend.Backend, list []*alteration) error {
	u, ok := b.(backend.Alterer)
	if !ok {
		return fmt.Errorf("flow %q: %w: backend %s cannot change it; remove it in one call and add it in the next", list[0].c.Name, dataplane.ErrUnplaced, b.Name())
	}

	ch := backend.Change{Was: make([]backend.Placed, len(list)), Now: make([]backend.Placed, len(list))}
	for i, x := range list {
		ch.Was[i] = x.c.Placed
		ch.Now[i] = x.to
	}
	s, hasHooks := b.(backend.SoftwareBackend)
	var come, leave []*flowState
	var before backend.Moment
	if hasHooks {
		if slices.ContainsFunc(list, func(x *alteration) bool { return x.rules }) {
			come, leave = a.comingTo(s), a.leaving(s)
			ch.Add, ch.Leave, ch.Return = placedOf(come), placedOf(leave), placedOf(a.restore)
			ch.Shadows = a.e.mover.stack != nil
		}
		before = s.Now()
	}

	var in []backend.Installed
	var end func(keep bool) error
	alter := func() (err error) { in, end, err = u.Alter(ctx, ch); return err }
	err := a.e.ctl.Outside(alter)
	if err != nil && ctx.Err() == nil && a.mayComeLater(come) {
		// install finds out what becomes of them. Until then packets count without them, hence tried.
		a.e.refused.tried = append(a.e.refused.tried, ch.Add...)
		come = nil
		ch.Add = nil
		err = a.e.ctl.Outside(alter)
	}
	if err == nil || errors.Is(err, backend.ErrUndone) {
		a.left = leave
	}
	switch {
	case err != nil && len(come) > 0:
		return fmt.Errorf("changing %s, and placing %s in %s: %w: %w", backend.Describe(ch.Was), backend.Describe(ch.Add), b.Name(), dataplane.ErrUnplaced, err)
	case err != nil:
		return fmt.Errorf("changing %s in %s: %w", backend.Describe(ch.Was), b.Name(), err)
	}

	a.ends = append(a.ends, func(keep bool) error { return a.e.ctl.Outside(func() error { return end(keep) }) })
	for i, x := range list {
		x.keep()
		x.in = in[i]
		if hasHooks {
			x.at = beganAt(s, x.to, before)
		}
	}
	for i, c := range come {
		a.noteInstalled(c, b, in[len(list)+i])
	}
	return nil
}

// comingTo lists the flows of add that u is to have rules of, and no other backend may take before it.
func (a *alterations) comingTo(u backend.SoftwareBackend) (come []*flowState) {
	for _, c := range a.add {
		if c.offload != nil {
			if a.e.mover.stack.software == u && !c.noShadow {
				come = append(come, c)
			}
			continue
		}
		if open := a.e.placement.choices.of(c.Flow).open; len(open) == 1 && open[0] == backend.Backend(u) {
			come = append(come, c)
		}
	}
	return come
}

// mayComeLater reports whether the change may go on where software has refused flows that come: without some of them, or
// without their shadows.
func (a *alterations) mayComeLater(come []*flowState) bool {
	return len(come) > 0 && a.e.refused.goOn || slices.ContainsFunc(come, func(c *flowState) bool {
		return c.offload != nil && c.allowsHardware && !a.e.mover.stack.audit
	})
}

// noteInstalled notes that software has the rules of a flow that is being added.
func (a *alterations) noteInstalled(c *flowState, u backend.Backend, in backend.Installed) {
	if c.offload != nil {
		c.shadow = in
		c.hasShadow = true
		return
	}
	if a.installed == nil {
		a.installed = make(map[*flowState]backend.Installed)
	}
	a.installed[c] = in
	c.backend = u
}

// leaving lists the flows of remove that u has rules of, that hardware does not count, and that would win for a moment although
// they win in neither set. They would win packets of a changed flow, which has won over them, or of another flow that leaves.
// The other flows of remove count to the end of the change.
func (a *alterations) leaving(u backend.SoftwareBackend) (list []*flowState) {
	out := overlap.NewIndex(func(f *backend.Placed) *flow.Flow { return &f.Flow })
	for _, x := range a.list {
		if x.rules {
			out.Add(&x.c.Placed)
		}
	}
	for _, c := range slices.SortedFunc(slices.Values(a.remove), byPrecedence) {
		in := c.backend == backend.Backend(u)
		if c.offload != nil {
			in = a.e.mover.stack.software == u && c.hasShadow && !c.offloaded
		}
		if !in {
			continue
		}
		loses := false
		out.Overlapping(&c.Flow, func(f *backend.Placed) { loses = loses || backend.ByPrecedence(*f, c.Placed) < 0 })
		if loses {
			out.Add(&c.Placed)
			list = append(list, c)
		}
	}
	return list
}

// beganAt returns the moment from which on outages concern a total of f whose counting began between before and now.
//
// That is now, unless f had an outage since before, which is still to be declared. A change that attaches programs moves the
// clock: with before, the next start would take the slot for one whose hooks came later.
func beganAt(s backend.SoftwareBackend, f backend.Placed, before backend.Moment) backend.Moment {
	now := s.Now()
	if last, open := s.Outage(f); open || last.After(before) {
		return before
	}
	return now
}
