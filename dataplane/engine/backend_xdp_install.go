package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// Install implements Backend. Over what a dead process left, flows that are
// counted already keep their rules; what nobody asks for any more makes room when there is none.
func (b *xdpBackend) Install(_ context.Context, flows []Placed) ([]Installed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.installOver(flows, true)
}

// Carry implements carrier.
func (b *xdpBackend) Carry(_ context.Context, flows []Placed) ([]Installed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.installOver(flows, false)
}

func (b *xdpBackend) installOver(flows []Placed, serve bool) ([]Installed, error) {
	owners := make([]string, len(flows))
	for i, f := range flows {
		owners[i] = owner(f.Flow)
	}
	order := b.places(owners)
	out, err := b.install(flows, owners, order, serve)
	if errors.Is(err, xdp.ErrFull) && !b.settled && b.adopted {
		if err := b.dropUnasked(owners); err != nil {
			return nil, err
		}
		out, err = b.install(flows, owners, order, serve)
	}
	return out, err
}

// places gives every flow its place among those of its priority: the one that
// its rules have, as long as that keeps the flows in order. A place of its own at
// every start would be another rule, and need room for two of each.
func (b *xdpBackend) places(owners []string) []uint32 {
	old := make(map[string]uint32)
	if !b.settled && b.adopted {
		byCounter := make(map[uint32]string)
		for _, c := range b.rules.Counters() {
			byCounter[c.ID] = c.Owner
		}
		for r := range b.there {
			old[byCounter[r.Counter]] = r.Order
		}
	}
	out := make([]uint32, len(owners))
	for i, o := range owners {
		if place, ok := old[o]; ok && place > b.next {
			b.next = place
		}
		out[i] = b.next
		b.next++
	}
	return out
}

// dropUnasked gives up what a dead process counted for flows that are none of
// these. Nothing of a flow that stays is touched.
func (b *xdpBackend) dropUnasked(owners []string) error {
	asked := make(map[string]bool, len(owners))
	for _, o := range owners {
		asked[o] = true
	}
	idle := make(map[uint32]bool)
	var counters []uint32
	for _, c := range b.rules.Counters() {
		if !asked[c.Owner] {
			idle[c.ID] = true
			counters = append(counters, c.ID)
		}
	}
	var rules []xdp.Rule
	for r := range b.there {
		if idle[r.Counter] {
			rules = append(rules, r)
		}
	}
	if err := b.drop(rules); err != nil {
		return err
	}
	return b.free(counters)
}

// install counts all of flows or none.
func (b *xdpBackend) install(flows []Placed, owners []string, order []uint32, serve bool) (_ []Installed, err error) {
	var fresh []uint32   // counters
	var added []xdp.Rule // that are in the tables
	defer func() {
		if err != nil {
			err = errors.Join(err, b.drop(added), b.free(fresh))
		}
	}()
	all := make([]*xdpFlow, len(flows))
	var missing []xdp.Rule
	seen := make(map[xdp.Rule]bool)
	for i, f := range flows {
		x := &xdpFlow{owner: owners[i], order: order[i]}
		if x.counter, err = b.rules.AllocCounter(x.owner); err != nil {
			return nil, fmt.Errorf("flow %q: allocating a counter: %w", f.Name, translate(err))
		}
		if !x.counter.Adopted {
			fresh = append(fresh, x.counter.ID)
		}
		if x.rules, err = b.compile(f, x, serve); err != nil {
			return nil, err
		}
		for _, r := range x.rules {
			if !b.there[r] && !seen[r] {
				seen[r] = true
				missing = append(missing, r)
			}
		}
		all[i] = x
	}
	if err := b.rules.Add(missing...); err != nil {
		return nil, fmt.Errorf("adding rules: %w", translate(err))
	}
	added = missing
	for _, r := range added {
		b.there[r] = true
	}
	if serve {
		if err := b.serve(flows, all); err != nil {
			return nil, err
		}
	}
	out := make([]Installed, len(flows))
	for i, f := range flows {
		x := all[i]
		b.flows[f.Name] = x
		out[i] = Installed{
			ID: x.counter.ID, Cookie: x.counter.Cookie, Basis: "l2", Source: b.source(f.Flow),
			Adopted: x.counter.Adopted, Gap: x.counter.Adopted && b.stretch(f.Flow) > b.inherited,
		}
	}
	return out, nil
}

// compile makes the rules of a flow. One that drops only counts while nobody needs its
// counts: what counts it elsewhere drops. Rules that a dead process left stay
// as they are until Serve.
func (b *xdpBackend) compile(f Placed, x *xdpFlow, serve bool) ([]xdp.Rule, error) {
	f.Order = x.order
	rules, err := compile(f, x.counter.ID, b.rules.Port)
	if err != nil {
		return nil, fmt.Errorf("flow %q: compiling: %w", f.Name, translate(err))
	}
	for i := range rules {
		if !serve && rules[i].Drop && !b.there[rules[i]] {
			rules[i].Drop = false
		}
	}
	return rules, nil
}

// Serve implements carrier.
func (b *xdpBackend) Serve(_ context.Context, flows []Placed, on bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, all := make([]Placed, 0, len(flows)), make([]*xdpFlow, 0, len(flows))
	for _, f := range flows {
		if x := b.flows[f.Name]; x != nil && x.served != on {
			known, all = append(known, f), append(all, x)
		}
	}
	if on {
		return b.serve(known, all)
	}
	var errs []error
	for i, f := range known {
		all[i].served = false
		b.need(f.Flow, -1)
		errs = append(errs, b.act(f, all[i], false))
	}
	return errors.Join(append(errs, b.trim())...)
}

// serve takes the hooks that the flows need. On error nobody needs more than before.
func (b *xdpBackend) serve(flows []Placed, all []*xdpFlow) error {
	for i, f := range flows {
		all[i].served = true
		b.need(f.Flow, 1)
	}
	err := b.attach()
	for i, f := range flows {
		if err == nil {
			err = b.act(f, all[i], true)
		}
	}
	if err == nil {
		return nil
	}
	for i, f := range flows {
		all[i].served = false
		b.need(f.Flow, -1)
	}
	return errors.Join(err, b.trim())
}

// act makes the rules of a flow do what it asks for, or only count.
func (b *xdpBackend) act(f Placed, x *xdpFlow, served bool) error {
	if f.Action != flow.Drop || len(x.rules) > 0 && x.rules[0].Drop == served {
		return nil
	}
	f.Order = x.order
	if !served {
		f.Action = flow.Count
	}
	rules, err := compile(f, x.counter.ID, b.rules.Port)
	if err != nil {
		return fmt.Errorf("flow %q: compiling: %w", f.Name, translate(err))
	}
	if err := b.drop(x.rules); err != nil {
		return err
	}
	if err := b.rules.Add(rules...); err != nil {
		return fmt.Errorf("flow %q: changing its rules: %w", f.Name, translate(err))
	}
	for _, r := range rules {
		b.there[r] = true
	}
	x.rules = rules
	return nil
}

// drop takes rules out of the tables.
func (b *xdpBackend) drop(rules []xdp.Rule) error {
	if len(rules) == 0 {
		return nil
	}
	if err := b.rules.Remove(rules...); err != nil {
		return fmt.Errorf("removing rules: %w", err)
	}
	for _, r := range rules {
		delete(b.there, r)
	}
	return nil
}

// Remove implements Backend. A flow whose rules stay in the tables stays; once
// they are out, a counter that cannot be given back is a loss of room only.
func (b *xdpBackend) Remove(_ context.Context, flows []Placed) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rules []xdp.Rule
	var counters []uint32
	for _, f := range flows {
		x, ok := b.flows[f.Name]
		if !ok {
			continue
		}
		for _, r := range x.rules {
			if b.there[r] {
				rules = append(rules, r)
			}
		}
		counters = append(counters, x.counter.ID)
	}
	if err := b.drop(rules); err != nil {
		return err
	}
	for _, f := range flows {
		if x := b.flows[f.Name]; x != nil && x.served {
			b.need(f.Flow, -1)
		}
		delete(b.flows, f.Name)
	}
	if err := b.trim(); err != nil {
		b.log.Error("letting go of hooks that nobody needs", "err", err)
	}
	if err := b.free(counters); err != nil {
		b.log.Error("giving counters back", "err", err)
	}
	return nil
}

// free gives counters back that no rule counts on.
func (b *xdpBackend) free(counters []uint32) error {
	var errs []error
	for _, id := range counters {
		if err := b.rules.FreeCounter(id); err != nil {
			errs = append(errs, fmt.Errorf("freeing counter %d: %w", id, err))
		}
	}
	return errors.Join(errs...)
}
