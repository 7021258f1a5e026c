package xdp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

var _ backend.Alterer = (*Backend)(nil)

// Alter implements backend.Alterer by one exchange of the rules of all flows.
func (b *Backend) Alter(ctx context.Context, c backend.Change) (in []backend.Installed, end func(keep bool) error, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.start != nil {
		return nil, nil, errors.New("the stale rules of an earlier process are not removed yet")
	}
	a := &alteration{b: b, Change: c}
	if err := a.prepare(ctx); err != nil {
		return nil, nil, errors.Join(nameLimit(err, b.maxFlows), a.takeBack())
	}
	for i, f := range slices.Concat(c.Now, c.Add) {
		a.in[i].Source = b.hooks.source(f.Flow)
	}
	return a.in, a.end, nil
}

// alteration is a change of installed flows that can be taken back until it ends.
type alteration struct {
	b *Backend
	backend.Change
	old, fresh []*entry
	added      []*entry
	turned     []*entry // of Leave and Return
	noted      []uint32 // orders in Backend.places
	in         []backend.Installed
	rules      [2][]xdp.Rule // that the change exchanges
	exchanged  bool
	demanded   bool // the demand has the active flows of Now and Add
	owners     []xdp.CounterInfo
	made       []uint32 // counters that only fresh count in
}

// prepare allocates counters, takes hooks and exchanges the rules. After an error takeBack follows.
func (a *alteration) prepare(ctx context.Context) error {
	b := a.b
	for i, f := range a.Was {
		x := b.flows[f.Name]
		if x == nil {
			return fmt.Errorf("flow %q: changing it: XDP has no rules of it", f.Name)
		}
		if a.Now[i].Order != f.Order {
			a.notePlace(f.Order, x.order)
		}
	}
	for i, f := range a.Was {
		x := b.flows[f.Name]
		y, in, err := a.counter(x, f, a.Now[i])
		if err != nil {
			return fmt.Errorf("flow %q: %w", f.Name, translate(err))
		}
		if a.Now[i].Order != f.Order {
			y.order = b.place(a.Now[i])
		}
		before, err := b.compile(f, x, x.drops)
		if err != nil {
			return err
		}
		rules, err := b.compile(a.Now[i], y, y.active)
		if err != nil {
			return err
		}
		y.drops = y.active && a.Now[i].Action == flow.Drop
		if !slices.Equal(before, rules) {
			a.rules[0] = append(a.rules[0], before...)
			a.rules[1] = append(a.rules[1], rules...)
		}
		a.old = append(a.old, x)
		a.fresh = append(a.fresh, y)
		a.in = append(a.in, in)
	}
	if err := a.prepareAdded(ctx); err != nil {
		return err
	}
	if err := a.prepareTurns(); err != nil {
		return err
	}

	a.addDemand(1)
	if err := b.hooks.attach(true); err != nil {
		return err
	}
	for f, y := range a.coming() {
		if !y.active {
			continue
		}
		if err := b.hooks.checkReach(f.Flow); err != nil {
			return err
		}
	}
	if err := b.exchangeFor(ctx, slices.Concat(a.old, a.turned), a.rules[0], a.rules[1]); err != nil {
		err = b.withFlows(err, a.Add, a.added)
		return fmt.Errorf("changing rules: %w", err)
	}
	a.exchanged = true
	a.put(a.Was, a.Now, a.fresh)
	a.put(nil, a.Add, a.added)
	a.turn()
	return nil
}

// notePlace notes the place of an order until end. A change that takes this one back gives the flow its place again: the order
// alone would put it behind all flows of the start.
func (a *alteration) notePlace(order, place uint32) {
	if _, is := a.b.places[order]; !is {
		a.b.places[order] = place
		a.noted = append(a.noted, order)
	}
}

// turn notes that flows which were in the tables have left them, and the other way round. A second call takes it back.
func (a *alteration) turn() {
	for _, x := range a.turned {
		x.left = !x.left
	}
}

// prepareAdded makes the entries of the flows that come.
func (a *alteration) prepareAdded(ctx context.Context) error {
	for _, f := range a.Add {
		if err := ctx.Err(); err != nil {
			return err
		}
		x, in, rules, err := a.b.newEntry(f, !a.Shadows)
		if err != nil {
			return err
		}
		if !in.Adopted {
			a.made = append(a.made, in.ID)
		}
		x.active = !a.Shadows
		a.added = append(a.added, x)
		a.in = append(a.in, in)
		a.rules[1] = append(a.rules[1], rules...)
	}
	return nil
}

// prepareTurns compiles the rules of the flows that leave, and of those that return.
func (a *alteration) prepareTurns() error {
	for _, f := range slices.Concat(a.Leave, a.Return) {
		x := a.b.flows[f.Name]
		if x == nil {
			continue
		}
		there := *x
		there.left = false
		rules, err := a.b.compile(f, &there, x.drops)
		if err != nil {
			return err
		}
		to := 0
		if x.left {
			to = 1
		}
		a.rules[to] = append(a.rules[to], rules...)
		a.turned = append(a.turned, x)
	}
	return nil
}

// coming yields the flows as they are to be.
func (a *alteration) coming() iter.Seq2[backend.Placed, *entry] {
	return func(yield func(backend.Placed, *entry) bool) {
		for i, y := range a.fresh {
			if !yield(a.Now[i], y) {
				return
			}
		}
		for i, y := range a.added {
			if !yield(a.Add[i], y) {
				return
			}
		}
	}
}

// addDemand notes that the flows as they are to be need their hooks, or do not.
func (a *alteration) addDemand(n int) {
	for f, y := range a.coming() {
		if y.active {
			a.b.hooks.demand.add(f.Flow, n)
		}
	}
	a.demanded = n > 0
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
		y.counter = c.ID
		y.own = nil
		y.apart = nil
		y.placed = nil
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
	a.forgetPlaces()
	var left []uint32
	for i, x := range a.old {
		if x.active {
			b.hooks.demand.add(a.Was[i].Flow, -1)
		}
		if x.counter == a.fresh[i].counter {
			continue
		}
		if y := b.flows[a.Was[i].Name]; y == nil || y.counter != x.counter { // else a second Alter has brought the flow back
			left = append(left, x.counter)
		}
		for ifname := range x.apart {
			b.hooks.demand.add(a.Was[i].On(ifname).Flow, -1)
		}
		for _, c := range x.own {
			left = append(left, c.ID)
		}
	}
	return errors.Join(b.trim(), b.freeCounters(left))
}

// takeBack brings the flows of before back. Flows of Add that were removed meanwhile are gone already.
func (a *alteration) takeBack() error {
	b := a.b
	a.forgetPlaces()
	a.forgetRemoved()
	if a.exchanged {
		if err := b.exchange(context.Background(), a.rules[1], a.rules[0]); err != nil {
			return fmt.Errorf("changing rules back: %w", err)
		}
		a.put(a.Now, a.Was, a.old)
		a.put(a.Add, nil, nil)
		a.turn()
	}
	if a.demanded {
		a.addDemand(-1)
	}
	var errs []error
	for _, o := range slices.Backward(a.owners) {
		errs = append(errs, b.rules.Rename(o.ID, o.Owner))
	}
	return errors.Join(append(errs, b.trim(), b.freeCounters(a.made))...)
}

func (a *alteration) forgetPlaces() {
	for _, order := range a.noted {
		delete(a.b.places, order)
	}
	a.noted = nil
}

// forgetRemoved drops the flows of Add that Remove has ended, with their rules, hooks and counters.
func (a *alteration) forgetRemoved() {
	if !a.exchanged {
		return
	}
	gone := make(map[uint32]bool) // by counter
	for i := len(a.Add) - 1; i >= 0; i-- {
		if x := a.added[i]; a.b.flows[a.Add[i].Name] != x {
			gone[x.counter] = true
			a.Add = slices.Delete(slices.Clone(a.Add), i, i+1)
			a.added = slices.Delete(a.added, i, i+1)
		}
	}
	a.rules[1] = slices.DeleteFunc(a.rules[1], func(r xdp.Rule) bool { return gone[r.Counter] })
	a.made = slices.DeleteFunc(a.made, func(id uint32) bool { return gone[id] })
}
