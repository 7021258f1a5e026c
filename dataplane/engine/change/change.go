// Package change plans a SetFlows: which flows to add, alter and remove, and which settings to change. It only compares. The
// engine asks the backends and makes the change.
package change

import (
	"cmp"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/overlap"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Plan is what a SetFlows has to do.
type Plan struct {
	Add    []backend.Placed
	Alter  []Alteration
	Remove []string // names
	List   []string // names of all flows after the change, in their order
}

// Alteration is the change of one flow.
type Alteration struct {
	Name   string // the old name
	To     backend.Placed
	Rules  bool // install other rules
	Relist bool // make a new entry in the mirror
	Anew   bool // the flow matches other packets, so its total starts again from 0
}

// New compares the current flows, in their order, with the given ones. It returns the difference for the caller of
// SetFlows, and the plan for the engine. next is the [backend.Placed.Order] for a flow added at the end.
func New(current []backend.Placed, next uint32, flows []flow.Flow, opts dataplane.SetOptions) (dataplane.Difference, Plan, error) {
	inSet := make([]flow.Flow, len(current))
	for i := range current {
		inSet[i] = current[i].Flow
	}
	d, err := dataplane.DiffFlows(inSet, flows, opts)
	if err != nil {
		return d, Plan{}, err
	}

	wanted := pair(current, flows, d.Renamed)
	switch {
	case opts.KeepOthers:
		wanted = inPlace(current, wanted)
	case len(opts.Keep) > 0:
		wanted = withKept(current, wanted, opts.Keep, d.Renamed)
	}
	p := plan(wanted, next, &d)
	p.Remove = d.Removed
	return d, p, nil
}

// wish is a flow that is to exist after the change.
type wish struct {
	flow *flow.Flow
	was  *backend.Placed // the flow it replaces; nil for a new flow
	at   int             // index of was in the current flows
}

// pair finds the current flow that each given flow replaces.
func pair(current []backend.Placed, flows []flow.Flow, renames []dataplane.Rename) []wish {
	oldName := make(map[string]string) // by new name
	for _, r := range renames {
		oldName[r.To] = r.From
	}
	wanted := make([]wish, len(flows))
	byOldName := make(map[string]int, len(flows))
	for i := range flows {
		wanted[i].flow = &flows[i]
		byOldName[cmp.Or(oldName[flows[i].Name], flows[i].Name)] = i
	}
	for at := range current {
		if i, ok := byOldName[current[at].Name]; ok {
			wanted[i].was = &current[at]
			wanted[i].at = at
		}
	}
	return wanted
}

// inPlace returns all current flows, with wanted flows in the places of those they replace, and new ones at the end.
func inPlace(current []backend.Placed, wanted []wish) []wish {
	all := make([]wish, len(current), len(current)+len(wanted))
	for at := range current {
		all[at] = wish{flow: &current[at].Flow, was: &current[at], at: at}
	}
	for _, w := range wanted {
		if w.was != nil {
			all[w.at] = w
		} else {
			all = append(all, w)
		}
	}
	return all
}

// withKept returns the wanted flows, followed by the other current flows that keep lists.
func withKept(current []backend.Placed, wanted []wish, keep []string, renames []dataplane.Rename) []wish {
	stays := make(map[string]bool, len(keep))
	for _, name := range keep {
		stays[name] = true
	}
	for _, w := range wanted {
		delete(stays, w.flow.Name)
	}
	for _, r := range renames {
		delete(stays, r.From)
	}

	for at := range current {
		if stays[current[at].Name] {
			wanted = append(wanted, wish{flow: &current[at].Flow, was: &current[at], at: at})
		}
	}
	return wanted
}

// plan gives the wanted flows their orders and decides what to do for each. If a flow must come after another one, that is a
// change of the flow, which plan adds to d.
func plan(wanted []wish, next uint32, d *dataplane.Difference) (p Plan) {
	flows := make([]*flow.Flow, len(wanted))
	orders := make([]int64, len(wanted))
	for i, w := range wanted {
		flows[i] = w.flow
		orders[i] = -1
		if w.was != nil {
			orders[i] = int64(w.was.Order)
		}
	}
	ranked := overlap.Rank(flows, orders, next)

	changed := make(map[string]*dataplane.FlowChange, len(d.Changed))
	for i := range d.Changed {
		changed[d.Changed[i].Name] = &d.Changed[i]
	}
	var behind []dataplane.FlowChange // flows that change only in their order
	for i, w := range wanted {
		p.List = append(p.List, w.flow.Name)
		to := backend.Placed{Flow: *w.flow, Order: ranked[i].Order}
		if w.was == nil {
			to.Flow = w.flow.Clone() // the caller owns its flows and may change them later
			p.Add = append(p.Add, to)
			continue
		}

		x := Alteration{Name: w.was.Name, To: to}
		if w.was.Order != to.Order {
			x.Rules = true
			field := dataplane.FieldChange{Field: "order", To: "behind " + ranked[i].Behind}
			if n := changed[w.flow.Name]; n != nil {
				n.Fields = append(n.Fields, field)
			} else {
				behind = append(behind, dataplane.FlowChange{Name: w.flow.Name, Fields: []dataplane.FieldChange{field}})
				if w.was.Name == w.flow.Name { // DiffFlows has counted it as unchanged
					d.Unchanged--
				}
			}
		}
		x.describe(changed[w.flow.Name])
		if x.Rules || x.Relist {
			x.To.Flow = w.flow.Clone()
			p.Alter = append(p.Alter, x)
		}
	}

	d.Changed = append(d.Changed, behind...)
	slices.SortFunc(d.Changed, func(a, b dataplane.FlowChange) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

// describe sets the actions for the changed fields. n is nil if no field changes.
func (x *Alteration) describe(n *dataplane.FlowChange) {
	x.Relist = x.Name != x.To.Name
	if n == nil {
		return
	}
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
