package plugintest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// SetFlows implements dataplane.Service.
func (f *Fake) SetFlows(ctx context.Context, flows []flow.Flow, opts dataplane.SetOptions) (dataplane.Difference, error) {
	if err := f.enter(ctx); err != nil {
		return dataplane.Difference{}, err
	}
	defer f.mu.Unlock()
	current := make([]flow.Flow, len(f.order))
	for i, name := range f.order {
		current[i] = f.placed[name].Flow
		if opts.KeepAdded && f.added[name] {
			opts.Keep = append(slices.Clip(opts.Keep), name)
		}
	}
	d, err := dataplane.DiffFlows(current, flows, opts)
	if err != nil {
		return d, fmt.Errorf("setting %d flows: %w", len(flows), err)
	}
	period := f.period
	interfaces := f.interfaces
	if opts.Config != nil {
		if err := opts.Config.Validate(); err != nil {
			return dataplane.Difference{}, fmt.Errorf("setting %d flows: %w", len(flows), err)
		}
		interfaces = opts.Config.Interfaces
		if to := opts.Config.Mirror.Path; to != "" && to != f.info.Mirror {
			return dataplane.Difference{}, fmt.Errorf("setting %d flows: %w: mirror.path (%s -> %s)", len(flows), dataplane.ErrRestart, f.info.Mirror, to)
		}
		if period = opts.Config.Poll.Period; period != f.period {
			d.Settings = []dataplane.FieldChange{{Field: "poll.period", From: f.period.String(), To: period.String()}}
		}
	}
	if opts.DryRun {
		return d, nil
	}
	for _, fl := range flows {
		if err := placeable(fl); err != nil {
			return dataplane.Difference{}, err
		}
	}
	for _, fl := range flows {
		delete(f.added, fl.Name)
	}
	f.period, f.interfaces = period, slices.Clone(interfaces)
	was := make(map[string]string)
	for _, r := range d.Renamed {
		was[r.To] = r.From
	}
	for _, name := range d.Removed {
		delete(f.placed, name)
		f.send(dataplane.Event{Kind: dataplane.FlowRemoved, Object: name})
	}
	names := make([]string, len(flows))
	for i, fl := range flows {
		names[i] = fl.Name
		from := cmp.Or(was[fl.Name], fl.Name)
		at := slices.Index(f.order, from)
		old, there := f.placed[from]
		delete(f.placed, from)
		next := f.next
		p := f.place(fl)
		switch {
		case !there:
			f.order = append(f.order, fl.Name)
			f.send(dataplane.Event{Kind: dataplane.FlowAdded, Object: fl.Name})
		default:
			f.order[at] = fl.Name
			if keeps(d, fl.Name) {
				f.next, p.Counter = next, old.Counter
				f.placed[fl.Name] = p
			}
		}
	}
	for _, c := range d.Changed {
		f.send(dataplane.Event{Kind: dataplane.FlowChanged, Object: c.Name})
	}
	if !opts.KeepOthers {
		for _, name := range f.order {
			if slices.Contains(opts.Keep, name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		f.order = names
	}
	return d, nil
}

// keeps says whether a flow has the counter that it had.
func keeps(d dataplane.Difference, name string) bool {
	if slices.ContainsFunc(d.Renamed, func(r dataplane.Rename) bool { return r.To == name }) {
		return false
	}
	i := slices.IndexFunc(d.Changed, func(c dataplane.FlowChange) bool { return c.Name == name })
	return i < 0 || !d.Changed[i].Anew && !slices.ContainsFunc(d.Changed[i].Fields, func(f dataplane.FieldChange) bool {
		return f.Field == "labels" || f.Field == "latency"
	})
}
