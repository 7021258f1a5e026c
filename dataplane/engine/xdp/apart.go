package xdp

import (
	"context"
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/xdp"
)

// CountApart implements backend.SoftwareBackend. While a flow is apart on an interface, its rules for all interfaces are
// replaced by rules for each one. During the exchange each packet is counted by the old rules or by the new ones.
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

// ownCounter allocates a counter for a flow on one interface. The flow keeps it until its removal, because the
// poller may read it after its rules are gone.
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

// setApart replaces the rules of flows, all or none, by their rules with an interface apart, or without it. A flow
// needs the hook of an interface that is apart.
func (b *Backend) setApart(flows []backend.Placed, ifname string, on bool) (err error) {
	turn := func(on bool) {
		for _, f := range flows {
			if x, one := b.flows[f.Name], f.On(ifname).Flow; on {
				x.apart[ifname] = struct{}{}
				b.hooks.demand.add(one, 1)
			} else {
				delete(x.apart, ifname)
				b.hooks.demand.add(one, -1)
			}
		}
	}
	rules := func() (all []xdp.Rule, err error) {
		for _, f := range flows {
			x := b.flows[f.Name]
			own, err := b.compile(f, x, x.drops)
			if err != nil {
				return nil, err
			}
			all = append(all, own...)
		}
		return all, nil
	}
	old, err := rules()
	if err != nil {
		return err
	}
	turn(on)
	fresh, err := rules()
	if err == nil {
		err = b.exchange(context.Background(), old, fresh)
	}
	if err != nil {
		turn(!on)
		return fmt.Errorf("changing the rules of %s for %s: %w", backend.Describe(flows), ifname, err)
	}
	return nil
}
