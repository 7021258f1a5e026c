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
	if d.Settings, err = f.settings(opts.Config); err != nil {
		return dataplane.Difference{}, fmt.Errorf("setting %d flows: %w", len(flows), err)
	}
	if opts.DryRun {
		return d, nil
	}
	for _, fl := range flows {
		if err := placeable(fl); err != nil {
			return dataplane.Difference{}, err
		}
	}

	if opts.Config != nil {
		f.period = opts.Config.Poll.Period
		f.interfaces = slices.Clone(opts.Config.Interfaces)
	}
	f.apply(flows, d)
	if !opts.KeepOthers {
		f.reorder(flows, opts.Keep)
	}
	return d, nil
}

// settings returns the changed settings. Only the poll period can change.
func (f *Fake) settings(cfg *dataplane.Config) ([]dataplane.FieldChange, error) {
	if cfg == nil {
		return nil, nil
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if to := cfg.Mirror.Path; to != "" && to != f.info.Mirror {
		return nil, fmt.Errorf("%w: mirror.path (%s -> %s)", dataplane.ErrRestart, f.info.Mirror, to)
	}
	if cfg.Poll.Period == f.period {
		return nil, nil
	}
	return []dataplane.FieldChange{{
		Field: "poll.period",
		From:  f.period.String(),
		To:    cfg.Poll.Period.String(),
	}}, nil
}

// apply makes the change and sends its events.
func (f *Fake) apply(flows []flow.Flow, d dataplane.Difference) {
	oldName := make(map[string]string)
	for _, r := range d.Renamed {
		oldName[r.To] = r.From
	}
	for _, name := range d.Removed {
		delete(f.placed, name)
		f.send(dataplane.Event{Kind: dataplane.FlowRemoved, Object: name})
	}

	for _, fl := range flows {
		delete(f.added, fl.Name)
		from := cmp.Or(oldName[fl.Name], fl.Name)
		old, placed := f.placed[from]
		delete(f.placed, from)
		next := f.next
		p := f.place(fl)
		if !placed {
			f.order = append(f.order, fl.Name)
			f.send(dataplane.Event{Kind: dataplane.FlowAdded, Object: fl.Name})
			continue
		}
		f.order[slices.Index(f.order, from)] = fl.Name
		if keeps(d, fl.Name) {
			f.next = next
			p.Counter = old.Counter
			f.placed[fl.Name] = p
		}
	}
	for _, c := range d.Changed {
		f.send(dataplane.Event{Kind: dataplane.FlowChanged, Object: c.Name})
	}
}

// reorder puts the given flows first, followed by the kept ones.
func (f *Fake) reorder(flows []flow.Flow, keep []string) {
	names := make([]string, len(flows))
	for i, fl := range flows {
		names[i] = fl.Name
	}
	for _, name := range f.order {
		if slices.Contains(keep, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	f.order = names
}

// keeps reports whether a flow keeps its counter.
func keeps(d dataplane.Difference, name string) bool {
	if slices.ContainsFunc(d.Renamed, func(r dataplane.Rename) bool { return r.To == name }) {
		return false
	}
	i := slices.IndexFunc(d.Changed, func(c dataplane.FlowChange) bool { return c.Name == name })
	return i < 0 || !d.Changed[i].Anew && !slices.ContainsFunc(d.Changed[i].Fields, func(f dataplane.FieldChange) bool {
		return f.Field == "labels" || f.Field == "latency"
	})
}
