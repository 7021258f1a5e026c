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

// Install implements backend.Backend. During a start it does what match has decided: flows take over their pinned counters, and
// their rules replace the pinned ones.
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

// install adds all of flows, or none and returns an error. With serve their counts will be published, so it also attaches to
// their hooks. One exchange replaces all pinned rules, so no packet falls between two flows of the list.
func (b *Backend) install(ctx context.Context, flows []backend.Placed, serve bool) (_ []backend.Installed, err error) {
	defer func() { err = nameLimit(err, b.maxFlows) }()
	if err := b.makeRoom(flows); err != nil {
		return nil, err
	}

	var allocated []uint32    // new counters
	var old, fresh []xdp.Rule // what the exchange removed and added
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

// newEntry makes the entry of a new flow: it allocates the counter and compiles the rules. Without drops, the rules of a flow
// with action drop only count for now.
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

// exchangePinned exchanges the pinned rules of flows for rules. If the tables lack room, it tries again without the idle rules
// of the pins. It returns what it has removed and added: nothing on error.
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

// noteStart notes a change before a start changes the first rule. RemoveStale clears the note. If the start
// dies in between, the next start finds rules of both configurations, and declares the gaps.
func (b *Backend) noteStart() {
	if b.start != nil {
		b.rules.NoteChange(true)
	}
}

// lacksRoom reports whether the tables might take the refused rules once other rules are gone.
func lacksRoom(err error) bool {
	return errors.Is(err, xdp.ErrFull) || errors.Is(err, xdp.ErrDense) || errors.Is(err, xdp.ErrCostly)
}

// makeRoom drops the idle counters and rules of the pins if flows have no room beside them. If the flows do not fit without
// them either, it returns an error and drops nothing: their counts are worth more than a failed start.
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

// withFlows adds to a cost error the names of the flows whose rules cost too much, among the installed and the added ones.
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

// exchangeFor is exchange for the rules of some flows, with mu unlocked: building the trees may take seconds, and the watcher
// must be able to attach to a lost hook meanwhile. It keeps mu if one of the flows counts apart, because a link event would
// change that flow's rules, too.
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

// exchange removes the rules old and adds the rules fresh in one step. If ctx ends first, it changes nothing.
func (b *Backend) exchange(ctx context.Context, old, fresh []xdp.Rule) error {
	if len(old)+len(fresh) == 0 {
		return nil
	}
	return translate(b.rules.ExchangeContext(ctx, old, fresh))
}

// Remove implements backend.Backend. If the rules cannot be removed, the flows stay installed. After that, Remove only logs
// errors: neither a program nor a counter too many harms a count.
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

// freeCounters frees counters. Callers must have removed all of their rules.
func (b *Backend) freeCounters(counters []uint32) error {
	var errs []error
	for _, id := range counters {
		if err := b.rules.FreeCounter(id); err != nil {
			errs = append(errs, fmt.Errorf("freeing counter %d: %w", id, err))
		}
	}
	return errors.Join(errs...)
}
