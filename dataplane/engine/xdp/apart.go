package xdp

import (
	"context"
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/xdp"
)

// CountApart implements backend.SoftwareBackend. A flow that counts apart on an interface has rules for each interface instead
// of rules for all of them. One exchange replaces the rules, so each packet counts once.
func (b *Backend) CountApart(_ context.Context, flows []backend.Placed, ifname string, on bool) (ids []uint32, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if on && b.start != nil {
		return nil, errors.New("the stale rules of an earlier process are not removed yet")
	}
	var changed []backend.Placed
	for _, f := range flows {
		x := b.flows[f.Name]
		if x == nil {
			return nil, fmt.Errorf("flow %q: counting it apart on %s: XDP has no rules for it", f.Name, ifname)
		}
		if _, is := x.apart[ifname]; is != on {
			changed = append(changed, f)
		}
		if on {
			if err := b.ownCounter(f, x, ifname); err != nil {
				return nil, err
			}
		}
		ids = append(ids, x.own[ifname].ID)
	}
	if err := b.setApart(changed, ifname, on); err != nil {
		return nil, err
	}
	if !on {
		return ids, b.trim()
	}
	err = b.hooks.attach(b.adopted || b.start == nil)
	for _, f := range changed {
		if err == nil {
			err = b.hooks.checkReach(f.On(ifname).Flow)
		}
	}
	if err != nil {
		return nil, errors.Join(err, b.setApart(changed, ifname, false), b.trim())
	}
	return ids, nil
}

// ownCounter allocates a counter for a flow on one interface, unless the flow has it from an earlier CountApart.
func (b *Backend) ownCounter(f backend.Placed, x *entry, ifname string) error {
	if _, has := x.own[ifname]; has {
		return nil
	}
	c, err := b.rules.AllocCounter(apartOwner(f, ifname))
	if err != nil {
		return fmt.Errorf("flow %q: counting it apart on %s: %w", f.Name, ifname, translate(err))
	}
	if x.own == nil {
		x.own = make(map[string]xdp.Counter)
		x.apart = make(map[string]struct{})
	}
	x.own[ifname] = c
	x.placed = &f
	return nil
}

// setApart exchanges the rules of flows so that they count apart on an interface, or do not: all of the flows, or none.
func (b *Backend) setApart(flows []backend.Placed, ifname string, on bool) error {
	old, err := b.rulesOf(flows)
	if err != nil {
		return err
	}

	b.noteApart(flows, ifname, on)
	fresh, err := b.rulesOf(flows)
	if err == nil {
		err = b.exchange(context.Background(), old, fresh)
	}
	if err != nil {
		b.noteApart(flows, ifname, !on)
		return fmt.Errorf("changing the rules of %s for %s: %w", backend.Describe(flows), ifname, err)
	}
	return nil
}

// noteApart notes where flows count apart, for compile and for the demand. Counts apart need the hook of their interface even
// if the shadow itself is not active.
func (b *Backend) noteApart(flows []backend.Placed, ifname string, on bool) {
	for _, f := range flows {
		x := b.flows[f.Name]
		if on {
			x.apart[ifname] = struct{}{}
			b.hooks.demand.add(f.On(ifname).Flow, 1)
		} else {
			delete(x.apart, ifname)
			b.hooks.demand.add(f.On(ifname).Flow, -1)
		}
	}
}

// rulesOf returns the rules of installed flows as they are now.
func (b *Backend) rulesOf(flows []backend.Placed) (all []xdp.Rule, err error) {
	for _, f := range flows {
		x := b.flows[f.Name]
		rules, err := b.compile(f, x, x.drops)
		if err != nil {
			return nil, err
		}
		all = append(all, rules...)
	}
	return all, nil
}
