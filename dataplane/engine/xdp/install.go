package xdp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// Install implements backend.Backend. During a start it carries out what match decided: a flow takes over its pinned counter,
// and its rules replace its pinned rules.
func (b *Backend) Install(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.install(ctx, flows, true)
}

// AddShadows implements backend.SoftwareBackend.
func (b *Backend) AddShadows(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.install(ctx, flows, false)
}

// install counts all of flows or none. serve says that their counts are published, so it attaches to the hooks they need. One
// exchange replaces their pinned rules.
func (b *Backend) install(ctx context.Context, flows []backend.Placed, serve bool) (_ []backend.Installed, err error) {
	defer func() { err = nameLimit(err, b.maxFlows) }()
	if err := b.makeRoom(flows); err != nil {
		return nil, err
	}

	var allocated []uint32    // counters
	var old, fresh []xdp.Rule // exchanged
	defer func() {
		if err != nil {
			err = errors.Join(err, b.exchange(context.WithoutCancel(ctx), fresh, old), b.freeCounters(allocated))
		}
	}()

	all := make([]*entry, len(flows))
	out := make([]backend.Installed, len(flows))
	rules := make([]xdp.Rule, 0, len(flows)) // most flows have one rule
	for i, f := range flows {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		pinned := b.start.fate(f.Flow)
		var own []xdp.Rule
		if all[i], out[i], own, err = b.newEntry(f, serve || pinned.drops); err != nil {
			return nil, err
		}
		out[i].Gap = pinned.gap
		rules = append(rules, own...)
		if !out[i].Adopted {
			allocated = append(allocated, out[i].ID)
		}
	}

	if old, fresh, err = b.exchangePinned(ctx, flows, all, rules); err != nil {
		return nil, err
	}
	if serve {
		if err := b.activate(ctx, flows, all); err != nil {
			return nil, err
		}
	}

	b.start.noteExchanged(rules, old)
	for i, f := range flows {
		b.flows[f.Name] = all[i]
		out[i].Source = b.hooks.source(f.Flow)
	}
	return out, nil
}

// newEntry allocates the counter of a flow that is to be added, and compiles its rules. drops: they drop, if the flow does.
func (b *Backend) newEntry(f backend.Placed, drops bool) (*entry, backend.Installed, []xdp.Rule, error) {
	x := &entry{owner: owner(f.Flow), order: b.place(f), drops: drops && f.Action == flow.Drop}
	c, err := b.rules.AllocCounter(x.owner)
	if err != nil {
		return nil, backend.Installed{}, nil, fmt.Errorf("flow %q: %w", f.Name, translate(err))
	}
	x.counter = c.ID
	rules, err := b.compile(f, x, x.drops)
	if err != nil && !c.Adopted {
		err = errors.Join(err, b.freeCounters([]uint32{c.ID}))
	}
	return x, backend.Installed{ID: c.ID, Cookie: c.Cookie, Basis: "l2", Adopted: c.Adopted}, rules, err
}

// exchangePinned replaces the pinned rules of flows by rules. If the tables lack room, it drops what the pins hold for no
// configured flow, and tries again. It returns what it exchanged: nothing on error.
func (b *Backend) exchangePinned(ctx context.Context, flows []backend.Placed, all []*entry, rules []xdp.Rule) (old, fresh []xdp.Rule, err error) {
	old, fresh = b.start.difference(all, rules)
	if len(old)+len(fresh) > 0 {
		b.noteStart()
	}
	err = b.exchangeFor(ctx, all, old, fresh)
	if lacksRoom(err) && b.start != nil && len(b.start.idle) > 0 && b.tryWithoutIdle(flows) == nil {
		if err := b.dropIdle(); err != nil {
			return nil, nil, err
		}
		old, fresh = b.start.difference(all, rules)
		err = b.exchangeFor(ctx, all, old, fresh)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("adding rules: %w", b.withFlows(err, flows, all))
	}
	return old, fresh, nil
}

// noteStart notes that a change is under way, ahead of the first rule that a start changes. RemoveStale ends it. A start that
// does not come to its end leaves its rules: packets may count for flows that the next start lacks.
func (b *Backend) noteStart() {
	if b.start != nil {
		b.rules.NoteChange(true)
	}
}

// lacksRoom reports whether the tables may accept the refused rules once others are gone.
func lacksRoom(err error) bool {
	return errors.Is(err, xdp.ErrFull) || errors.Is(err, xdp.ErrDense) || errors.Is(err, xdp.ErrCostly)
}

// makeRoom drops what the pins hold for no configured flow, if flows find no room beside that. If they find none without that
// either, it returns an error and drops nothing.
func (b *Backend) makeRoom(flows []backend.Placed) error {
	if b.start == nil {
		return nil
	}
	r := b.room()
	for _, f := range flows {
		r.Take(f)
	}
	if r.counters <= r.mostCounters && r.rules <= r.mostRules {
		return nil
	}
	if err := r.lacks(0, 0); err != nil {
		return err
	}
	if err := b.tryWithoutIdle(flows); err != nil {
		return err
	}
	return b.dropIdle()
}

// dropIdle removes the idle counters and their rules.
func (b *Backend) dropIdle() error {
	s := b.start
	rules := s.idleRules()
	if len(rules) > 0 {
		b.noteStart()
	}
	if err := b.exchange(context.Background(), rules, nil); err != nil {
		return fmt.Errorf("removing rules: %w", err)
	}
	s.noteExchanged(nil, rules)

	idle := slices.Collect(maps.Keys(s.idle))
	clear(s.idle)
	return b.freeCounters(idle)
}

// withFlows names the flows whose rules cost too much in an error: flows of the backend, or of those that were to be added.
func (b *Backend) withFlows(err error, added []backend.Placed, entries []*entry) error {
	if !errors.Is(err, xdp.ErrCostly) {
		return err
	}
	nameByCounter := make(map[uint32]string)
	for name, x := range b.flows {
		nameByCounter[x.counter] = name
	}
	for i, x := range entries {
		nameByCounter[x.counter] = added[i].Name
	}
	return withFlows(err, func(r *xdp.Rule) string { return nameByCounter[r.Counter] })
}

// exchangeFor is exchange for rules of these flows. It unlocks mu meanwhile, so that the watcher attaches to a lost hook again
// although the exchange takes seconds. A link event changes the rules of flows that count apart on an interface: mu stays
// locked for those.
func (b *Backend) exchangeFor(ctx context.Context, flows []*entry, old, fresh []xdp.Rule) error {
	if slices.ContainsFunc(flows, func(x *entry) bool { return len(x.apart) > 0 }) {
		return b.exchange(ctx, old, fresh)
	}
	if len(old)+len(fresh) == 0 {
		return nil
	}

	b.mu.Unlock()
	defer b.mu.Lock()
	return translate(b.rules.ExchangeContext(ctx, old, fresh))
}

// exchange replaces the rules old by fresh in the tables. If ctx ends first, the rules are as before.
func (b *Backend) exchange(ctx context.Context, old, fresh []xdp.Rule) error {
	if len(old)+len(fresh) == 0 {
		return nil
	}
	return translate(b.rules.ExchangeContext(ctx, old, fresh))
}

// Remove implements backend.Backend. If the tables keep the rules, the flows stay. Once the rules are gone, the flows are too:
// a counter that cannot be freed only costs room.
func (b *Backend) Remove(_ context.Context, flows []backend.Placed) error {
	b.mu.Lock()
	defer b.mu.Unlock()

	var all []*entry
	var rules []xdp.Rule
	var counters []uint32
	for _, f := range flows {
		x, ok := b.flows[f.Name]
		if !ok {
			continue
		}
		all = append(all, x)
		own, err := b.compile(f, x, x.drops)
		if err != nil {
			return err
		}
		rules = append(rules, own...)
		counters = append(counters, x.counter)
		for _, c := range x.own {
			counters = append(counters, c.ID)
		}
	}
	if err := b.exchangeFor(context.Background(), all, rules, nil); err != nil {
		return fmt.Errorf("removing rules: %w", err)
	}

	for _, f := range flows {
		if x := b.flows[f.Name]; x != nil {
			if x.active {
				b.hooks.demand.add(f.Flow, -1)
			}
			for ifname := range x.apart {
				b.hooks.demand.add(f.On(ifname).Flow, -1)
			}
		}
		delete(b.flows, f.Name)
	}
	if err := b.trim(); err != nil {
		b.log.Error("detaching from hooks that no flow needs", "err", err)
	}
	if err := b.freeCounters(counters); err != nil {
		b.log.Error("freeing counters", "err", err)
	}
	return nil
}

// freeCounters frees counters that no rule uses.
func (b *Backend) freeCounters(counters []uint32) error {
	var errs []error
	for _, id := range counters {
		if err := b.rules.FreeCounter(id); err != nil {
			errs = append(errs, fmt.Errorf("freeing counter %d: %w", id, err))
		}
	}
	return errors.Join(errs...)
}
