// Package change plans a change of the set of flows: which flows are added, altered in their places and removed, and in
// which order they win. It asks no backend and changes nothing.
package change

import (
	"cmp"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Plan is a change of the set.
type Plan struct {
	Add    []backend.Placed
	Alter  []Alteration
	Remove []string // names
	List   []string // the names of the set after the change, in the order of its flows
}

// Alteration is a flow of the set that becomes another one.
type Alteration struct {
	Name   string // before the change
	To     backend.Placed
	Rules  bool // its rules change
	Relist bool // its entry in the mirror is made anew
	Anew   bool // it counts other packets: its total begins at 0
}

// New returns the difference between the flows of the set and the given flows, and the change that makes the set these.
// there is the set in the order of its flows, next the [backend.Placed.Order] of a flow that is added behind them.
func New(there []backend.Placed, next uint32, flows []flow.Flow, opts dataplane.SetOptions) (d dataplane.Difference, p Plan, err error) {
	current := make([]flow.Flow, len(there))
	for i := range there {
		current[i] = there[i].Flow
	}
	if d, err = dataplane.DiffFlows(current, flows, opts); err != nil {
		return d, p, err
	}
	renamed := make(map[string]string) // old names by new ones
	for _, r := range d.Renamed {
		renamed[r.To] = r.From
	}
	given := make(map[string]int, len(flows)) // places in flows, by the names before the change
	for i := range flows {
		given[cmp.Or(renamed[flows[i].Name], flows[i].Name)] = i
	}
	old, at := make([]*backend.Placed, len(flows)), make([]int, len(flows)) // at: places in there
	for i := range there {
		if j, is := given[there[i].Name]; is {
			old[j], at[j] = &there[i], i
		}
	}
	switch {
	case opts.KeepOthers:
		flows, old = among(current, there, flows, old, at)
	case len(opts.Keep) > 0:
		flows, old = before(there, d, opts.Keep, flows, old)
	}
	changed := make(map[string]*dataplane.FlowChange, len(d.Changed))
	for i := range d.Changed {
		changed[d.Changed[i].Name] = &d.Changed[i]
	}
	orders := make([]int64, len(flows))
	for i, c := range old {
		if orders[i] = -1; c != nil {
			orders[i] = int64(c.Order)
		}
	}
	ranked := flow.Rank(flows, orders, next)
	var behind []dataplane.FlowChange
	for i, f := range flows {
		p.List = append(p.List, f.Name)
		c, to := old[i], backend.Placed{Flow: f, Order: ranked[i].Order}
		if c == nil {
			to.Flow = f.Clone() // the caller may change its flows afterwards
			p.Add = append(p.Add, to)
			continue
		}
		x := Alteration{Name: c.Name, To: to}
		if c.Order != to.Order {
			x.Rules = true
			field := dataplane.FieldChange{Field: "order", To: "behind " + ranked[i].Behind}
			if n := changed[f.Name]; n != nil {
				n.Fields = append(n.Fields, field)
			} else {
				behind = append(behind, dataplane.FlowChange{Name: f.Name, Fields: []dataplane.FieldChange{field}})
			}
		}
		if x.describe(changed[f.Name]); x.Rules || x.Relist {
			x.To.Flow = f.Clone()
			p.Alter = append(p.Alter, x)
		}
	}
	for _, c := range behind {
		if renamed[c.Name] == "" {
			d.Unchanged--
		}
	}
	d.Changed = append(d.Changed, behind...)
	slices.SortFunc(d.Changed, func(a, b dataplane.FlowChange) int { return cmp.Compare(a.Name, b.Name) })
	p.Remove = d.Removed
	return d, p, nil
}

// describe notes the fields that change.
func (x *Alteration) describe(n *dataplane.FlowChange) {
	x.Relist = x.Name != x.To.Name
	if n != nil {
		x.Anew = n.Anew
		x.Relist = x.Relist || n.Anew
		for _, field := range n.Fields {
			switch field.Field {
			case "latency", "labels":
				x.Relist = true
			default:
				x.Rules = true
			}
		}
	}
}

// among returns the whole set with flows in the places of old, and those that are not there behind all. all are the flows
// of there, to be written to, and at the places of old.
func among(all []flow.Flow, there []backend.Placed, flows []flow.Flow, old []*backend.Placed, at []int) ([]flow.Flow, []*backend.Placed) {
	was := make([]*backend.Placed, len(there))
	for i := range there {
		was[i] = &there[i]
	}
	for i, f := range flows {
		if old[i] != nil {
			all[at[i]] = f
			continue
		}
		all, was = append(all, f), append(was, nil)
	}
	return all, was
}

// before returns flows, followed by the flows of the set that keep names and that are not among them.
func before(there []backend.Placed, d dataplane.Difference, keep []string, flows []flow.Flow, old []*backend.Placed) ([]flow.Flow, []*backend.Placed) {
	stays := make(map[string]bool, len(keep))
	for _, name := range keep {
		stays[name] = true
	}
	for _, f := range flows {
		delete(stays, f.Name)
	}
	for _, r := range d.Renamed {
		delete(stays, r.From)
	}
	all, was := slices.Clip(flows), slices.Clip(old)
	for i := range there {
		if stays[there[i].Name] {
			all, was = append(all, there[i].Flow), append(was, &there[i])
		}
	}
	return all, was
}
