package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// counted is a flow that is counted now, or about to be.
type counted struct {
	backend.Placed
	id       uint32 // by backend, where it was placed in no stack; see Installed
	handle   shm.Handle
	backend  backend.Backend       // that feeds its total
	rejected []dataplane.Rejection // shared by flows: replaced, never written to
	source   dataplane.Source
	basis    string
	base     backend.Pair   // what the total is made of beside the source's own count
	past     shm.Continuity // as the mirror has it
	epoch    uint64         // of its shadow's counting; see SoftwareBackend.Epoch
	*offload                // nil: not in the stack
}

// published says whether it has its entry in the mirror.
func (c *counted) published() bool { return c.handle != shm.Handle{} }

// AddFlows implements dataplane.Service.
func (e *Engine) AddFlows(ctx context.Context, flows ...flow.Flow) ([]dataplane.Placement, error) {
	var out []dataplane.Placement
	err := e.call(ctx, "adding "+about(names(flows)), "none of them stays", func(ctx context.Context, v *verdict) (err error) {
		if out, err = e.add(ctx, flows, v); err != nil {
			return err
		}
		for _, p := range out {
			e.log.Info("flow added", "flow", p.Flow.Name, "backend", p.Source.Backend, "device", p.Source.DeviceNames(), "mode", p.Source.Modes())
			e.events.send(dataplane.FlowAdded, p.Flow.Name, backend.Identity(p.Flow))
		}
		return nil
	})
	if err != nil {
		return nil, err // out may be written to still
	}
	return out, nil
}

// add installs all of flows or none; v has the last word. It is called with ctl held.
func (e *Engine) add(ctx context.Context, flows []flow.Flow, v *verdict) ([]dataplane.Placement, error) {
	placed, err := e.admit(flows)
	if err != nil || len(placed) == 0 {
		return nil, err
	}
	all := make([]*counted, len(placed))
	var plain, layers []*counted
	for i, p := range placed {
		all[i] = e.newCounted(p)
		if all[i].offload == nil {
			plain = append(plain, all[i])
		} else {
			layers = append(layers, all[i])
		}
	}
	e.adding = all
	defer func() { e.adding = nil }()
	if err = e.place(ctx, plain); err == nil {
		err = e.placeStack(ctx, layers)
	}
	if err == nil {
		err = v.keep(ctx)
	}
	if err != nil {
		if e.inherited == nil { // what a start that failed has inherited must be there for the next one
			err = errors.Join(err, e.undo(context.WithoutCancel(ctx), all))
		}
		return nil, err
	}
	out := make([]dataplane.Placement, len(all))
	for i, c := range all {
		e.flows[c.Name] = c
		out[i] = c.placement()
	}
	e.order += uint32(len(placed))
	return out, nil
}

// undo takes back what a failed add has done, and lets those go back that made room for it.
func (e *Engine) undo(ctx context.Context, all []*counted) error {
	var errs []error
	for _, c := range all {
		if c.published() {
			e.plan.Remove(c.handle.Index)
			errs = append(errs, e.spared(e.writer.Remove(c.handle)))
		}
	}
	room := overlaid(all)
	errs = append(errs, e.uninstall(ctx, all))
	return errors.Join(append(errs, e.closeRanks(ctx, all, room))...)
}

// overlaid is how many of flows the overlay counts.
func overlaid(flows []*counted) (n int) {
	for _, c := range flows {
		if c.offload != nil && c.offloaded {
			n++
		}
	}
	return n
}

// closeRanks takes flows that are counted no more out of the stack, and brings those to where they are
// to be counted now that were below them, or that may find room: as many as the overlay has lost.
func (e *Engine) closeRanks(ctx context.Context, gone []*counted, room int) error {
	if e.stack == nil {
		return nil
	}
	seeds := losers(gone)
	e.stack.unrelate(slices.DeleteFunc(slices.Clone(gone), func(c *counted) bool { return c.offload == nil }))
	left := make(map[*counted]bool, len(gone))
	for _, c := range gone {
		left[c] = true
	}
	seeds = slices.DeleteFunc(seeds, func(c *counted) bool { return left[c] })
	return e.arrange(ctx, nil, append(seeds, e.roomFor(room)...))
}

// uninstall takes flows out of the backends that have them: out of the overlay
// first, or rules behind it would count what it still does.
func (e *Engine) uninstall(ctx context.Context, all []*counted) error {
	from := make(map[backend.Backend][]backend.Placed)
	for _, c := range all {
		switch {
		case c.offload == nil && c.backend != nil:
			from[c.backend] = append(from[c.backend], c.Placed)
		case c.offload != nil && c.offloaded:
			from[e.stack.over] = append(from[e.stack.over], c.Placed)
		}
		if c.offload != nil && c.hasUnder {
			from[e.stack.under] = append(from[e.stack.under], c.Placed)
		}
	}
	for _, b := range e.backends { // overlays come before what they lie over
		if len(from[b]) == 0 {
			continue
		}
		if err := b.Remove(ctx, from[b]); err != nil {
			return fmt.Errorf("removing %s from %s: %w", backend.Describe(from[b]), b.Name(), err)
		}
		for _, c := range all {
			if e.stack != nil && c.offload != nil && b == backend.Backend(e.stack.over) {
				c.offloaded = false
			}
		}
	}
	return nil
}

// admit checks flows against the rules and against each other.
func (e *Engine) admit(flows []flow.Flow) ([]backend.Placed, error) {
	var errs []error
	names := make(map[string]bool, len(flows))
	out := make([]backend.Placed, len(flows))
	for i, f := range flows {
		if err := f.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", dataplane.ErrInvalid, err))
		}
		if e.pairs.HasCounter(f.Name) {
			errs = append(errs, fmt.Errorf("flow %q: a completion counter has that name: %w; choose another name", f.Name, dataplane.ErrExists))
		}
		if _, there := e.flows[f.Name]; there || names[f.Name] {
			errs = append(errs, fmt.Errorf("flow %q: %w; remove it first or choose another name", f.Name, dataplane.ErrExists))
		}
		if f.Interface != "" && !slices.ContainsFunc(e.cfg.Interfaces, func(i dataplane.Interface) bool { return i.Name == f.Interface }) {
			errs = append(errs, fmt.Errorf("flow %q: interface %s is not one of the instance's; add it under interfaces: %w",
				f.Name, f.Interface, dataplane.ErrInvalid))
		}
		names[f.Name] = true
		out[i] = backend.Placed{Flow: f, Order: e.order + uint32(i)}
	}
	return out, errors.Join(errs...)
}

// RemoveFlows implements dataplane.Service.
func (e *Engine) RemoveFlows(ctx context.Context, names ...string) error {
	return e.call(ctx, "removing "+about(names), "the removal goes on, and Placements tells its end", func(ctx context.Context, _ *verdict) error {
		return e.remove(context.WithoutCancel(ctx), names)
	})
}

// remove ends the counting of all of names or none. It is called with ctl held.
func (e *Engine) remove(ctx context.Context, names []string) error {
	var errs []error
	var going []*counted
	seen := make(map[*counted]bool, len(names))
	for _, n := range names {
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
	// The backend first: a flow that it does not let go of stays one, and one
	// that was killed in between goes on in the mirror where it was. Its source is read until it is
	// forgotten, and serves nobody else before: both happen under ctl.
	room := overlaid(going)
	if err := e.uninstall(ctx, going); err != nil {
		return errors.Join(err, e.arrange(ctx, nil, nil))
	}
	for _, c := range going {
		errs = append(errs, e.forget(c))
	}
	return errors.Join(append(errs, e.closeRanks(ctx, going, room))...)
}

// forget takes a flow out of the plan and the mirror.
func (e *Engine) forget(c *counted) error {
	e.plan.Remove(c.handle.Index)
	delete(e.flows, c.Name)
	e.log.Info("flow removed", "flow", c.Name)
	e.events.send(dataplane.FlowRemoved, c.Name, backend.Identity(c.Flow))
	if err := e.spared(e.writer.Remove(c.handle)); err != nil {
		return fmt.Errorf("flow %q: removing its counter: %w", c.Name, err)
	}
	return nil
}

// Placements implements dataplane.Service.
func (e *Engine) Placements(ctx context.Context, names ...string) ([]dataplane.Placement, error) {
	if err := e.lock(ctx, "listing the flows"); err != nil {
		return nil, err
	}
	defer e.ctl.Unlock()
	var out []dataplane.Placement
	if len(names) == 0 {
		out = make([]dataplane.Placement, 0, len(e.flows))
		for _, c := range e.flows {
			out = append(out, c.placement())
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if c := e.flows[name]; c != nil {
			out = append(out, c.placement())
		}
	}
	slices.SortFunc(out, func(a, b dataplane.Placement) int { return cmp.Compare(a.Flow.Name, b.Flow.Name) })
	return out, nil
}

func (c *counted) placement() dataplane.Placement {
	return dataplane.Placement{
		Flow: c.Flow, Source: c.source, Rejected: c.rejected,
		Counter: c.handle,
	}
}
