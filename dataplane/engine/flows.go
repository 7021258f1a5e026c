package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/control"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// flowState is a flow of the set: what counts it, its entry in the mirror, and the base of its total.
type flowState struct {
	*shown                   // write to it through edit alone
	held     bool            // shown is in use, by readers or by an alteration that may be undone: edit has to copy it
	pending  *pending        // Engine.pending
	id       uint32          // of a flow outside the stack: its slot, as backend.Installed.ID
	slot     uint64          // the cookie of that slot
	backend  backend.Backend // feeds the total
	basis    string
	base     backend.Pair   // total = base + count of backend
	past     shm.Continuity // a copy of what the mirror has
	place    uint64         // its place in the list of flows after a restart; see overlap.Rank
	added    bool           // AddFlows added it, and SetFlows was not given it since; see SetOptions.KeepAdded
	*offload                // nil: not in the stack
}

// published reports whether the flow has an entry in the mirror.
func (c *flowState) published() bool { return c.handle != shm.Handle{} }

// seen returns the time of the last loss that the discontinuities of the flow include.
func (c *flowState) seen() backend.Moment { return backend.Moment(c.past.Seen) }

// slotCookie returns the cookie of the slot of a flow that software counts. The next process recognizes the slot by it.
func (c *flowState) slotCookie() uint64 {
	if c.offload != nil {
		return c.shadow.Cookie
	}
	return c.slot
}

// missedPackets reports whether software may have missed packets of the flow since its last discontinuity, or may miss some now.
func (c *flowState) missedPackets(u backend.SoftwareBackend) bool {
	last, open := u.Outage(c.Placed)
	return open || last.After(c.seen())
}

// AddFlows implements dataplane.Service.
func (e *Engine) AddFlows(ctx context.Context, flows ...flow.Flow) ([]dataplane.Placement, error) {
	var out []dataplane.Placement
	err := e.call(ctx, "adding "+control.Describe(names(flows)), "none of them stays", func(ctx context.Context, commit *control.Commit) (err error) {
		out, err = e.add(ctx, flows, commit)
		for _, p := range out {
			e.flows[p.Flow.Name].added = true
		}
		return err
	})
	if err != nil {
		return nil, err // not out: the call may still be writing to it
	}
	return out, nil
}

// add adds all flows, or none; commit decides last. Callers hold ctl.
func (e *Engine) add(ctx context.Context, flows []flow.Flow, commit *control.Commit) ([]dataplane.Placement, error) {
	var placed []backend.Placed
	err := e.ctl.Outside(func() (err error) { placed, err = e.admit(flows); return err })
	if err != nil || len(placed) == 0 {
		return nil, err
	}
	return e.addPlaced(ctx, placed, commit)
}

// addPlaced is add for flows with an order.
func (e *Engine) addPlaced(ctx context.Context, placed []backend.Placed, commit *control.Commit) ([]dataplane.Placement, error) {
	ch := &change{e: e, add: placed}
	if err := ch.apply(ctx, commit); err != nil {
		return nil, err
	}
	out := make([]dataplane.Placement, len(ch.added))
	err := e.ctl.Outside(func() error {
		if !e.catalogue.Inheriting() {
			ch.report()
		}
		for i, c := range ch.added {
			out[i] = c.placement()
		}
		return nil
	})
	return out, err
}

// SetFlows implements dataplane.Service.
func (e *Engine) SetFlows(ctx context.Context, flows []flow.Flow, opts dataplane.SetOptions) (d dataplane.Difference, err error) {
	doing := fmt.Sprintf("setting %d flows", len(flows))
	if opts.DryRun {
		if d, err = e.tryFlows(ctx, doing, flows, opts); err != nil {
			err = fmt.Errorf("%s: %w", doing, err)
		}
		return d, err
	}
	var out dataplane.Difference // written before a call can become unfinished
	err = e.call(ctx, doing, "no flow changes", func(ctx context.Context, commit *control.Commit) error {
		var diff dataplane.Difference
		var ch *change
		err := e.ctl.Outside(func() (err error) { diff, ch, err = newChange(e, flows, opts); return err })
		if err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
		out = diff
		commit.GoOn()
		defer e.catalogue.Offer(diff.Removed)()
		// A change by a degraded configuration goes on without refused flows, as a start does.
		before := e.refused.begin(opts.Config != nil && opts.Config.Start == dataplane.StartDegraded)
		for _, p := range ch.add {
			e.refused.remove(p.Name)
		}
		if err := ch.apply(ctx, commit); err != nil {
			e.refused.end(before)
			return fmt.Errorf("%s: %w", doing, err)
		}
		e.refused.end(nil)
		e.refused.set(flows, opts, e.flows)
		if err := e.catalogue.RemoveInherited(e.refused.entries()); err != nil {
			e.log.Warn("removing the totals of flows that were refused", "err", err)
		}
		return e.ctl.Outside(func() error {
			ch.report()
			ch.announce(diff)
			return nil
		})
	})
	if decided := (*dataplane.UnfinishedError)(nil); err != nil && !errors.As(err, &decided) {
		return d, err // not out: the call may still be writing to it
	}
	return out, err
}

// admit checks new flows one by one, against the instance and against each other, and gives them their order.
func (e *Engine) admit(flows []flow.Flow) ([]backend.Placed, error) {
	var errs []error
	names := make(map[string]bool, len(flows))
	out := make([]backend.Placed, len(flows))
	for i, f := range flows {
		if err := f.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", dataplane.ErrInvalid, err))
		}
		if _, there := e.flows[f.Name]; there || names[f.Name] || e.refused.flows[f.Name] != nil {
			errs = append(errs, fmt.Errorf("flow %q: %w; remove it first or choose another name", f.Name, dataplane.ErrExists))
		}
		names[f.Name] = true
		out[i] = backend.Placed{Flow: f.Clone(), Order: e.order + uint32(i)}
	}
	return out, errors.Join(append(errs, e.allow(flows, e.cfg.Interfaces))...)
}

// allow checks flows against the instance and its sets, and against the interfaces that it has or will have.
func (e *Engine) allow(flows []flow.Flow, interfaces []dataplane.Interface) error {
	var errs []error
	for _, f := range flows {
		if e.pairs.HasCounter(f.Name) || e.Set.Has(f.Name) {
			errs = append(errs, fmt.Errorf("flow %q: a completion counter has that name: %w; choose another name", f.Name, dataplane.ErrExists))
		}
		if err := dataplane.ReachesInterface(interfaces, f); err != nil {
			errs = append(errs, err)
		}
		if err := dataplane.KnowsSets(e.cfg.Sets, f); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", dataplane.ErrInvalid, err))
		}
	}
	return errors.Join(errs...)
}

// Interfaces implements dataplane.Service.
func (e *Engine) Interfaces(ctx context.Context) ([]dataplane.Interface, error) {
	if err := e.mayRead(ctx, "listing the interfaces"); err != nil {
		return nil, err
	}
	e.inForce.mu.Lock()
	defer e.inForce.mu.Unlock()
	return slices.Clone(e.inForce.interfaces), nil
}

// giveInterfaces makes the backends count on a list of interfaces: all backends, or none.
func (e *Engine) giveInterfaces(list []dataplane.Interface) error {
	was := e.given
	var done []backend.InterfaceSetter
	for _, b := range e.backends {
		s, ok := b.(backend.InterfaceSetter)
		if !ok {
			continue
		}
		if err := e.ctl.Outside(func() error { return s.SetInterfaces(list) }); err != nil {
			err = fmt.Errorf("interfaces: backend %s: %w", b.Name(), err)
			for _, s := range done {
				err = errors.Join(err, e.ctl.Outside(func() error { return s.SetInterfaces(was) }))
			}
			return err
		}
		done = append(done, s)
	}
	e.given = list
	e.refused.again = true
	return nil
}

// RemoveFlows implements dataplane.Service.
func (e *Engine) RemoveFlows(ctx context.Context, names ...string) error {
	return e.call(ctx, "removing "+control.Describe(names), "the removal goes on, and Placements tells its end", func(ctx context.Context, _ *control.Commit) error {
		return e.remove(context.WithoutCancel(ctx), names)
	})
}

// remove removes all named flows, or none. Callers hold ctl.
func (e *Engine) remove(ctx context.Context, names []string) error {
	var errs []error
	var going []*flowState
	seen := make(map[*flowState]bool, len(names))
	for _, n := range names {
		if e.refused.flows[n] != nil {
			continue
		}
		c, ok := e.flows[n]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("flow %q: %w", n, dataplane.ErrNotFound))
		case !seen[c]:
			going = append(going, c)
		}
		seen[c] = true
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	ch := &change{e: e, remove: going}
	if err := ch.apply(ctx, nil); err != nil {
		return err
	}
	e.refused.drop(names)
	err := e.catalogue.RemoveInherited(e.refused.entries())
	return errors.Join(err, e.ctl.Outside(func() error { ch.report(); return nil }))
}

// forget removes a flow from the plan and the mirror.
func (e *Engine) forget(c *flowState) error {
	e.drop(c.Name)
	if err := e.catalogue.Remove(c.handle); err != nil {
		return fmt.Errorf("flow %q: removing its counter: %w", c.Name, err)
	}
	return nil
}

// Placements implements dataplane.Service.
func (e *Engine) Placements(ctx context.Context, names ...string) ([]dataplane.Placement, error) {
	if err := e.mayRead(ctx, "listing the flows"); err != nil {
		return nil, err
	}
	return e.inForce.placements(names), nil
}

// mayRead returns an error if the instance is closed or the caller has given up. Calls that only read need no lock.
func (e *Engine) mayRead(ctx context.Context, doing string) error {
	if e.closed() {
		return dataplane.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
