package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// tryFlows returns the difference that SetFlows would make, and the cost of a packet then.
func (e *Engine) tryFlows(ctx context.Context, doing string, flows []flow.Flow, opts dataplane.SetOptions) (dataplane.Difference, error) {
	if err := e.lock(ctx, doing); err != nil {
		return dataplane.Difference{}, err
	}
	d, ch, err := newChange(e, flows, opts)
	var now *dataplane.Cost
	var after dataplane.Config
	if err == nil && opts.Cost {
		now, after = e.costInForce(), e.cfg
		after.Flows = ch.after()
	}
	e.ctl.Unlock() // a build of the trees takes up to seconds
	switch {
	case err != nil || !opts.Cost:
		return d, err
	case len(ch.add)+len(ch.alter)+len(ch.remove) == 0:
		d.Cost = now
		return d, nil
	}
	bound := after.XDP.WorstCost
	if after.XDP.WorstCost = cmp.Or(after.XDP.WorstCost, dataplane.DefaultWorstCost); now != nil {
		after.XDP.WorstCost = max(after.XDP.WorstCost, now.Worst().Steps()) // what is in force is not refused
	}
	p, err := Plan(after)
	if err != nil {
		return dataplane.Difference{}, err
	}
	if p.Rules > 0 {
		p.Cost.Bound = bound
		d.Cost = &p.Cost
	}
	return d, nil
}

// costInForce returns what a packet costs in the tables of XDP, or nil if there are no flows in them.
func (e *Engine) costInForce() *dataplane.Cost {
	if len(e.flows) == 0 {
		return nil
	}
	for _, b := range e.backends {
		if x, ok := b.(*xdp.Backend); ok {
			c := x.Cost()
			return &c
		}
	}
	return nil
}

// after returns the flows after the change, in their order.
func (ch *change) after() []flow.Flow {
	byName := make(map[string]flow.Flow)
	place := make(map[string]int)
	for name, c := range ch.e.flows {
		byName[name], place[name] = c.Flow, int(c.place)
	}
	for _, c := range ch.remove {
		delete(byName, c.Name)
	}
	for _, x := range ch.alter {
		delete(byName, x.c.Name)
	}
	for _, x := range ch.alter {
		byName[x.to.Name], place[x.to.Name] = x.to.Flow, int(x.c.place)
	}
	for i, p := range ch.add {
		byName[p.Name], place[p.Name] = p.Flow, len(ch.e.flows)+1<<32+i
	}
	for i, name := range ch.list {
		place[name] = i
	}
	out := make([]flow.Flow, 0, len(byName))
	for _, f := range byName {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b flow.Flow) int { return cmp.Compare(place[a.Name], place[b.Name]) })
	return out
}
