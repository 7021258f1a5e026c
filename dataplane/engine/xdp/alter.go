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

// Alter implements backend.Alterer. One exchange of the rules of all flows makes the change, so no packet sees half of it.
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

// alteration is a Change on its way. Until end it can be taken back; the fields below Change say what there is to take back.
type alteration struct {
	b *Backend
	backend.Change

	old, fresh []*entry // of Was and Now
	added      []*entry // of Add
	turned     []*entry // of Leave and Return
	in         []backend.Installed
	rules      [2][]xdp.Rule // removed and added by the exchange

	noted     []uint32          // Orders in Backend.places
	owners    []xdp.CounterInfo // of renamed counters: the names before
	made      []uint32          // new counters, in which only fresh and added count
	demanded  bool              // the active flows of Now and Add are in the demand
	exchanged bool
}

// prepare allocates counters, attaches to hooks and exchanges the rules. After an error the caller must call takeBack.
func (a *alteration) prepare(ctx context.Context) error {
	b := a.b
	if err := a.notePlaces(); err != nil {
		return err
	}
	for i := range a.Was {
		if err := a.prepareChanged(a.Was[i], a.Now[i]); err != nil {
			return err
		}
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

// notePlaces notes until end the places of flows that get another Order. A second Alter may take this one back, and the flow
// must return to its place. Backend.place alone would put it behind all flows of the start.
//
// All places must be known before prepareChanged asks for the first one: flows may exchange their Orders.
func (a *alteration) notePlaces() error {
	for i, f := range a.Was {
		x := a.b.flows[f.Name]
		if x == nil {
			return fmt.Errorf("flow %q: changing it: XDP has no rules of it", f.Name)
		}
		if _, noted := a.b.places[f.Order]; noted || a.Now[i].Order == f.Order {
			continue
		}
		a.b.places[f.Order] = x.order
		a.noted = append(a.noted, f.Order)
	}
	return nil
}

// prepareChanged makes the entry of one flow as it is to be, and compiles its rules from before and from now on.
func (a *alteration) prepareChanged(was, now backend.Placed) error {
	b := a.b
	x := b.flows[was.Name]
	y, in, err := a.counter(x, was, now)
	if err != nil {
		return fmt.Errorf("flow %q: %w", was.Name, translate(err))
	}
	if now.Order != was.Order {
		y.order = b.place(now)
	}

	before, err := b.compile(was, x, x.drops)
	if err != nil {
		return err
	}
	rules, err := b.compile(now, y, y.active)
	if err != nil {
		return err
	}
	y.drops = y.active && now.Action == flow.Drop
	if !slices.Equal(before, rules) {
		a.rules[0] = append(a.rules[0], before...)
		a.rules[1] = append(a.rules[1], rules...)
	}

	a.old = append(a.old, x)
	a.fresh = append(a.fresh, y)
	a.in = append(a.in, in)
	return nil
}

// turn notes that the flows of Leave have no rules any more, and the flows of Return have them again. A second call takes the
// first one back.
func (a *alteration) turn() {
	for _, x := range a.turned {
		x.left = !x.left
	}
}

// prepareAdded makes the entries of the flows of Add.
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

// prepareTurns compiles the rules of the flows of Leave and Return.
func (a *alteration) prepareTurns() error {
	for _, f := range slices.Concat(a.Leave, a.Return) {
		x := a.b.flows[f.Name]
		if x == nil {
			continue
		}
		inTables := *x
		inTables.left = false
		rules, err := a.b.compile(f, &inTables, x.drops)
		if err != nil {
			return err
		}
		if x.left { // it returns
			a.rules[1] = append(a.rules[1], rules...)
		} else {
			a.rules[0] = append(a.rules[0], rules...)
		}
		a.turned = append(a.turned, x)
	}
	return nil
}

// coming yields the flows of Now and Add with their entries.
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

// addDemand adds the active flows of Now and Add to the demand, or takes them away if n is -1.
func (a *alteration) addDemand(n int) {
	for f, y := range a.coming() {
		if y.active {
			a.b.hooks.demand.add(f.Flow, n)
		}
	}
	a.demanded = n > 0
}

// counter returns the entry that replaces x. If the flow keeps its identity, the counter stays and only its owner changes.
// Otherwise the entry gets a new counter, and counts apart on no interface.
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

// put replaces the flows of from by the flows of to, whose entries are all.
func (a *alteration) put(from, to []backend.Placed, all []*entry) {
	for _, f := range from {
		delete(a.b.flows, f.Name)
	}
	for i, f := range to {
		a.b.flows[f.Name] = all[i]
	}
}

// end is the end of Alter. With keep it frees the hooks and counters that only the old flows needed, otherwise it takes the
// change back.
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
		if y := b.flows[a.Was[i].Name]; y == nil || y.counter != x.counter { // otherwise a second Alter has brought the flow back
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

// takeBack brings the old flows back and frees what the change has made. It knows from the fields how far prepare came.
func (a *alteration) takeBack() error {
	b := a.b
	a.forgetPlaces()
	a.forgetRemoved()
	if a.exchanged {
		if err := b.exchange(context.Background(), a.rules[1], a.rules[0]); err != nil {
			return fmt.Errorf("restoring the earlier rules of %s: %w", backend.Describe(append(slices.Clone(a.Was), a.Leave...)), err)
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

// forgetRemoved drops the flows of Add that Remove has removed meanwhile, with their rules and counters: takeBack must not
// remove those twice.
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
