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
	all := make([]*entry, 0, len(flows))
	for _, f := range flows {
		if x := b.flows[f.Name]; x != nil && x.active != on {
			known, all = append(known, f), append(all, x)
		}
	}

	ctx = context.WithoutCancel(ctx) // not half of the flows with their new actions
	if on {
		return b.serveEntries(ctx, known, all)
	}

	var errs []error
	for i, f := range known {
		all[i].active = false
		b.hooks.demand.add(f.Flow, -1)
		errs = append(errs, b.applyAction(ctx, f, all[i], false))
	}
	return errors.Join(append(errs, b.trim())...)
}

// serveEntries attaches to the hooks that flows need, and gives their rules their actions. On error it takes the demand back.
func (b *Backend) serveEntries(ctx context.Context, flows []backend.Placed, all []*entry) error {
	for i, f := range flows {
		all[i].active = true
		b.hooks.demand.add(f.Flow, 1)
	}

	err := b.hooks.attach(b.adopted || b.start == nil)
	for i, f := range flows {
		if err == nil {
			err = b.hooks.checkReach(f.Flow)
		}
		if err == nil {
			err = b.applyAction(ctx, f, all[i], true)
		}
	}
	if err == nil {
		return nil
	}

	for i, f := range flows {
		all[i].active = false
		b.hooks.demand.add(f.Flow, -1)
	}
	return errors.Join(err, b.trim())
}

// applyAction gives the rules of an active flow its action. The rules of other flows only count.
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
