package xdp

import (
	"context"
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// SetActive implements backend.SoftwareBackend.
func (b *Backend) SetActive(ctx context.Context, flows []backend.Placed, on bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()

	known := make([]backend.Placed, 0, len(flows))
	entries := make([]*entry, 0, len(flows))
	for _, f := range flows {
		if x := b.flows[f.Name]; x != nil && x.active != on {
			known = append(known, f)
			entries = append(entries, x)
		}
	}

	// Canceled halfway, some of the flows would drop packets and others would not.
	ctx = context.WithoutCancel(ctx)
	if on {
		return b.activate(ctx, known, entries)
	}

	var errs []error
	for i, f := range known {
		entries[i].active = false
		b.hooks.demand.add(f.Flow, -1)
		errs = append(errs, b.applyAction(ctx, f, entries[i], false))
	}
	return errors.Join(append(errs, b.trim())...)
}

// activate attaches to the hooks of flows, then lets their rules drop packets where the flows ask for it. It
// activates all of them, or none and returns an error.
func (b *Backend) activate(ctx context.Context, flows []backend.Placed, entries []*entry) error {
	for i, f := range flows {
		entries[i].active = true
		b.hooks.demand.add(f.Flow, 1)
	}

	dropping, err := b.attachAndApply(ctx, flows, entries)
	if err == nil {
		return nil
	}

	errs := []error{err}
	for i, f := range flows {
		entries[i].active = false
		b.hooks.demand.add(f.Flow, -1)
	}
	for _, i := range dropping {
		errs = append(errs, b.applyAction(ctx, flows[i], entries[i], false))
	}
	return errors.Join(append(errs, b.trim())...)
}

// attachAndApply is activate without its undo. dropping lists the flows whose rules did not drop before, also after an
// error.
func (b *Backend) attachAndApply(ctx context.Context, flows []backend.Placed, entries []*entry) (dropping []int, err error) {
	if err := b.hooks.attach(b.adopted || b.start == nil); err != nil {
		return nil, err
	}
	for i, f := range flows {
		if err := b.hooks.checkReach(f.Flow); err != nil {
			return dropping, err
		}
		dropped := entries[i].drops
		if err := b.applyAction(ctx, f, entries[i], true); err != nil {
			return dropping, err
		}
		if entries[i].drops != dropped {
			dropping = append(dropping, i)
		}
	}
	return dropping, nil
}

// applyAction makes the rules of a flow with action drop do so, or only count. The rules of an inactive flow must not
// drop packets: another backend decides about them.
func (b *Backend) applyAction(ctx context.Context, f backend.Placed, x *entry, active bool) error {
	if f.Action != flow.Drop || x.drops == active {
		return nil
	}

	old, err := b.compile(f, x, x.drops)
	if err != nil {
		return err
	}
	rules, err := b.compile(f, x, active)
	if err != nil {
		return err
	}
	if err := b.exchange(ctx, old, rules); err != nil {
		return fmt.Errorf("flow %q: changing its rules: %w", f.Name, err)
	}
	x.drops = active
	return nil
}
