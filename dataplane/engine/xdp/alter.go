package xdp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// alteration is a change of installed flows that can be taken back until it ends.
type alteration struct {
	b          *Backend
	was, now   []backend.Placed
	old, fresh []*entry
	in         []backend.Installed
	rules      [2][]xdp.Rule // of was and now, those that differ
	exchanged  bool
	demanded   bool // the demand has the flows of now
	owners     []xdp.CounterInfo
	made       []uint32 // counters that only fresh count in
}

// prepare allocates counters, takes hooks and exchanges the rules. After an error takeBack follows.
func (a *alteration) prepare(ctx context.Context) error {
	b := a.b
	for i, f := range a.was {
		x := b.flows[f.Name]
		if x == nil {
			return fmt.Errorf("flow %q: changing it: XDP has no rules of it", f.Name)
		}
		y, in, err := a.counter(x, f, a.now[i])
		if err != nil {
			return fmt.Errorf("flow %q: %w", f.Name, translate(err))
		}
		if a.now[i].Order != f.Order {
			y.order = b.place(a.now[i])
		}
		before, err := b.compile(f, x, x.drops)
		if err != nil {
			return err
		}
		rules, err := b.compile(a.now[i], y, y.active)
		if err != nil {
			return err
		}
		y.drops = y.active && a.now[i].Action == flow.Drop
		if !slices.Equal(before, rules) {
			a.rules[0], a.rules[1] = append(a.rules[0], before...), append(a.rules[1], rules...)
		}
		a.old, a.fresh, a.in = append(a.old, x), append(a.fresh, y), append(a.in, in)
	}
	for i, y := range a.fresh {
		if y.active {
			b.hooks.demand.add(a.now[i].Flow, 1)
		}
	}
	a.demanded = true

	if err := b.hooks.attach(true); err != nil {
		return err
	}
	for i, y := range a.fresh {
		if !y.active {
			continue
		}
		if err := b.hooks.checkReach(a.now[i].Flow); err != nil {
			return err
		}
	}
	if err := b.exchangeFor(ctx, a.old, a.rules[0], a.rules[1]); err != nil {
		err = b.withFlows(err, nil, nil)
		return fmt.Errorf("changing rules: %w", err)
	}
	a.exchanged = true
	a.put(a.was, a.now, a.fresh)
	return nil
}

// counter returns a flow as it is to be, with the counter of x if the flow counts the same packets, else with
// one of its own.
func (a *alteration) counter(x *entry, was, now backend.Placed) (*entry, backend.Installed, error) {
	y := *x
	y.owner = owner(now.Flow)
	if y.placed != nil {
		y.placed = &now
	}
	if was.Flow.Identity() != now.Flow.Identity() {
		c, err := a.b.rules.AllocCounter(y.owner)
		if err != nil {
			return nil, backend.Installed{}, err
		}
		if !c.Adopted {
			a.made = append(a.made, c.ID)
		}
		y.counter, y.own, y.apart, y.placed = c.ID, nil, nil, nil
		return &y, backend.Installed{ID: c.ID, Cookie: c.Cookie, Basis: "l2", Adopted: c.Adopted}, nil
	}
	if err := a.rename(x.counter, x.owner, y.owner); err != nil {
		return nil, backend.Installed{}, err
	}
	for ifname, c := range x.own {
		if err := a.rename(c.ID, apartOwner(was, ifname), apartOwner(now, ifname)); err != nil {
			return nil, backend.Installed{}, err
		}
	}
	return &y, backend.Installed{ID: x.counter, Basis: "l2"}, nil
}

func (a *alteration) rename(counter uint32, from, to string) error {
	if from == to {
		return nil
	}
	if err := a.b.rules.Rename(counter, to); err != nil {
		return err
	}
	a.owners = append(a.owners, xdp.CounterInfo{Counter: xdp.Counter{ID: counter}, Owner: from})
	return nil
}

// put replaces the entries of from with all, the entries of to.
func (a *alteration) put(from, to []backend.Placed, all []*entry) {
	for _, f := range from {
		delete(a.b.flows, f.Name)
	}
	for i, f := range to {
		a.b.flows[f.Name] = all[i]
	}
}

// end frees the hooks and counters that only the flows of before needed, or brings those flows back.
func (a *alteration) end(keep bool) error {
	b := a.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if !keep {
		return a.takeBack()
	}
	var left []uint32
	for i, x := range a.old {
		if x.active {
			b.hooks.demand.add(a.was[i].Flow, -1)
		}
		if x.counter == a.fresh[i].counter {
			continue
		}
		if y := b.flows[a.was[i].Name]; y == nil || y.counter != x.counter { // else a second Alter has brought the flow back
			left = append(left, x.counter)
		}
		for _, c := range x.own {
			left = append(left, c.ID)
		}
	}
	return errors.Join(b.trim(), b.freeCounters(left))
}

func (a *alteration) takeBack() error {
	b := a.b
	if a.exchanged {
		if err := b.exchange(context.Background(), a.rules[1], a.rules[0]); err != nil {
			return fmt.Errorf("changing rules back: %w", err)
		}
		a.put(a.now, a.was, a.old)
	}
	var errs []error
	for i, y := range a.fresh {
		if y.active && a.demanded {
			b.hooks.demand.add(a.now[i].Flow, -1)
		}
	}
	for _, o := range slices.Backward(a.owners) {
		errs = append(errs, b.rules.Rename(o.ID, o.Owner))
	}
	return errors.Join(append(errs, b.trim(), b.freeCounters(a.made))...)
}
