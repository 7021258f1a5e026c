package dataplane

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// SetOptions are the options of [Service.SetFlows]. The zero value makes the set exactly the given flows.
type SetOptions struct {
	// DryRun returns the difference and changes nothing. It checks the flows against the rules and
	// against each other, and asks no backend and no device.
	DryRun bool

	// Cost makes a DryRun compute the cost of a packet after the change ([Difference.Cost]), and refuse flows with
	// ErrCostly that the change would refuse. It takes as long as the search structure of the flows takes to build.
	Cost bool

	// KeepOthers keeps the flows of the set that are not among the given ones.
	KeepOthers bool

	// Keep names flows of the set that stay although they are not among the given ones. They keep their order and
	// come behind the given flows. Names that no flow has are ignored.
	Keep []string

	// KeepAdded keeps the flows that AddFlows has added and that no SetFlows was given since, like Keep.
	KeepAdded bool

	// Config is the configuration that the instance is to have, without regard to its Flows. nil leaves the settings.
	// The settings change with the flows, all or none. If a setting differs that only a restart changes, the call
	// returns ErrRestart and changes nothing. An interface that refuses to be counted on is an error, unless the
	// instance was started with [StartDegraded]; one that does not exist is waited for. Packets of interfaces that
	// stay are counted without a gap. A list that leaves a flow no interface ([ReachesInterface]) is refused.
	Config *Config

	// Renames holds the new name of a flow by its old name. The flow keeps its total. The new name must be
	// among the given flows and must be free; the old name must not be among them. A rename that was made
	// before, so that a flow has the new name and none has the old one, is ignored.
	Renames map[string]string
}

// Difference is a change of the set of flows. Its lists are ordered by name.
type Difference struct {
	// Settings are the settings that change, by their names in a configuration file, such as "poll.period". It is
	// empty without SetOptions.Config.
	Settings []FieldChange
	Added    []string
	Removed  []string

	// Renamed are flows that got another name. One that changed beside is in Changed too.
	Renamed []Rename

	// Changed are flows that were in the set and are in it still, by their new names.
	Changed []FlowChange

	// Unchanged is the number of the other flows.
	Unchanged int

	// Cost is what a packet costs after the change; nil without SetOptions.Cost, and where XDP counts no flow.
	Cost *Cost
}

// Rename is the old and the new name of a flow.
type Rename struct{ From, To string }

// FlowChange is the change of one flow.
type FlowChange struct {
	Name   string
	Fields []FieldChange // in the order of the fields of flow.Flow
	// Anew: the total begins at 0, as the flow counts other packets than before. Else the total goes on.
	Anew bool
}

// FieldChange is the change of one field of a flow.
type FieldChange struct {
	// Field is "match", "priority", "direction", "action", "interface", "latency", "backend", "labels",
	// or "order": the flow comes behind another one of its priority that it overlaps. Of a setting it is its name.
	Field string
	// From and To are the values as text; of "order", To is "behind" and the name of the other flow.
	From, To string
}

// Empty reports whether nothing changes.
func (d Difference) Empty() bool {
	return len(d.Settings)+len(d.Added)+len(d.Removed)+len(d.Renamed)+len(d.Changed) == 0
}

// String returns a line for each setting that changes, then a line for each flow that changes, each with its newline
// and ordered by name:
//
//	~ setting poll.period: 10ms -> 5ms
//	~ dns: count -> drop
//	~ front: was web
//	- old
//	~ ssh: match "tcp dport 22" -> "tcp dport 2222", counts anew
//	+ web2
//
// The difference without changes is the empty string.
func (d Difference) String() string {
	lineByName := make(map[string]string)
	for _, name := range d.Added {
		lineByName[name] = "+ " + name
	}
	for _, name := range d.Removed {
		lineByName[name] = "- " + name
	}
	for _, r := range d.Renamed {
		lineByName[r.To] = "~ " + r.To + ": was " + r.From
	}
	for _, c := range d.Changed {
		line, renamed := lineByName[c.Name]
		if renamed {
			line += ", "
		} else {
			line = "~ " + c.Name + ": "
		}
		lineByName[c.Name] = line + c.text()
	}

	var out strings.Builder
	for _, s := range d.Settings {
		out.WriteString("~ setting " + s.Field + ": " + s.From + " -> " + s.To + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(lineByName)) {
		out.WriteString(lineByName[name] + "\n")
	}
	return out.String()
}

// text lists the changes of one flow.
func (c FlowChange) text() string {
	parts := make([]string, 0, len(c.Fields)+1)
	for _, f := range c.Fields {
		parts = append(parts, f.String())
	}
	if c.Anew {
		parts = append(parts, "counts anew")
	}
	return strings.Join(parts, ", ")
}

// String returns the change as text: "count -> drop", `priority 0 -> 7`.
func (f FieldChange) String() string {
	switch f.Field {
	case "action":
		return f.From + " -> " + f.To
	case "order":
		return f.To
	case "match", "labels":
		return fmt.Sprintf("%s %q -> %q", f.Field, f.From, f.To)
	}
	return fmt.Sprintf("%s %s -> %s", f.Field, f.From, f.To)
}

// DiffFlows returns the difference between the flows of a set, current, and those that SetFlows is to make of it.
// An error satisfies errors.Is(err, ErrInvalid), ErrExists or ErrNotFound. The order of flows of one priority is
// not compared.
func DiffFlows(current, flows []flow.Flow, opts SetOptions) (Difference, error) {
	wanted, broken := names(flows)
	old := relevant(current, wanted, opts.Renames)
	oldName, err := renamed(old, wanted, opts.Renames)
	if broken != nil {
		return Difference{}, broken
	}
	if err != nil {
		return Difference{}, err
	}

	var d Difference
	var errs problems
	kept := make(map[string]bool, len(flows)) // by the old name
	for i := range flows {
		f := &flows[i]
		name := cmp.Or(oldName[f.Name], f.Name)
		if old[name] == nil {
			d.Added = append(d.Added, f.Name)
			continue
		}
		kept[name] = true

		fields, anew := changes(old[name], f)
		if name != f.Name {
			if anew {
				errs.add("flow %q: it is renamed from %q, keeps its total, and so must count the same packets; change the match, the direction and the interface in another call", f.Name, name)
			}
			d.Renamed = append(d.Renamed, Rename{From: name, To: f.Name})
		}
		switch {
		case len(fields) > 0:
			d.Changed = append(d.Changed, FlowChange{Name: f.Name, Fields: fields, Anew: anew})
		case name == f.Name:
			d.Unchanged++
		}
	}
	if err := errs.err(); err != nil {
		return Difference{}, err
	}

	d.rest(current, kept, opts)
	slices.Sort(d.Added)
	slices.Sort(d.Removed)
	slices.SortFunc(d.Renamed, func(a, b Rename) int { return cmp.Compare(a.To, b.To) })
	slices.SortFunc(d.Changed, func(a, b FlowChange) int { return cmp.Compare(a.Name, b.Name) })
	return d, nil
}

// names returns the names of the given flows, and an error if a flow is invalid or given twice.
func names(flows []flow.Flow) (map[string]bool, error) {
	var errs problems
	wanted := make(map[string]bool, len(flows))
	for i := range flows {
		errs.note(flows[i].Validate())
		if wanted[flows[i].Name] {
			errs.add("flow %q: given twice; remove one", flows[i].Name)
		}
		wanted[flows[i].Name] = true
	}
	return wanted, errs.err()
}

// relevant returns those flows of the set that are among the given ones, or are renamed, by name. It leaves the others
// out, since one flow of 100,000 may be given.
func relevant(current []flow.Flow, wanted map[string]bool, renames map[string]string) map[string]*flow.Flow {
	out := make(map[string]*flow.Flow, min(len(current), len(wanted)+len(renames)))
	for i := range current {
		f := &current[i]
		if _, renames := renames[f.Name]; renames || wanted[f.Name] {
			out[f.Name] = f
		}
	}
	return out
}

// rest sorts the flows of the set that are not among the given ones into those that stay and those that go.
func (d *Difference) rest(current []flow.Flow, kept map[string]bool, opts SetOptions) {
	stays := make(map[string]bool, len(opts.Keep))
	for _, name := range opts.Keep {
		stays[name] = true
	}
	for i := range current {
		name := current[i].Name
		switch {
		case kept[name]:
		case opts.KeepOthers, stays[name]:
			d.Unchanged++
		default:
			d.Removed = append(d.Removed, name)
		}
	}
}

// renamed returns the old name of each flow that gets another one, by the new name.
func renamed(was map[string]*flow.Flow, wanted map[string]bool, renames map[string]string) (map[string]string, error) {
	oldName := make(map[string]string, len(renames))
	for _, from := range slices.Sorted(maps.Keys(renames)) {
		to := renames[from]
		other, twice := oldName[to]
		switch {
		case !wanted[to]:
			return nil, fmt.Errorf("flow %q: %w: it is to be renamed to %q, which is not among the flows; add it to them", from, ErrInvalid, to)
		case from == to:
			return nil, fmt.Errorf("flow %q: %w: it is to be renamed to its own name; leave the rename out", from, ErrInvalid)
		case wanted[from]:
			return nil, fmt.Errorf("flow %q: %w: it is to be renamed to %q, and is among the flows; add a flow of that name in another call", from, ErrInvalid, to)
		case twice:
			return nil, fmt.Errorf("flow %q: %w: flow %q is to have that name too; choose another one", to, ErrInvalid, other)
		case was[from] == nil && was[to] == nil:
			return nil, fmt.Errorf("flow %q: %w: it is to be renamed to %q; leave the rename out to add that flow", from, ErrNotFound, to)
		case was[from] == nil: // an earlier call has renamed it
			continue
		case was[to] != nil:
			return nil, fmt.Errorf("flow %q: %w: flow %q is to have that name; rename it, or remove it in a call before", to, ErrExists, from)
		}
		oldName[to] = from
	}
	return oldName, nil
}

// changes lists the fields in which two flows differ. anew says whether they may count different packets.
func changes(from, to *flow.Flow) (out []FieldChange, anew bool) {
	// Make texts only of fields that differ: in a large set few flows do.
	note := func(field string, differs bool, text func(*flow.Flow) string) bool {
		if differs {
			out = append(out, FieldChange{Field: field, From: text(from), To: text(to)})
		}
		return differs
	}
	interfaceOf := func(f *flow.Flow) string { return cmp.Or(f.Interface, "any") }
	backendOf := func(f *flow.Flow) string { return cmp.Or(string(f.Backend), "default") }

	match := note("match", !from.Match.Equal(to.Match), func(f *flow.Flow) string { return f.Match.String() })
	note("priority", from.Priority != to.Priority, func(f *flow.Flow) string { return strconv.Itoa(int(f.Priority)) })
	direction := note("direction", from.Direction != to.Direction, func(f *flow.Flow) string { return f.Direction.String() })
	note("action", from.Action != to.Action, func(f *flow.Flow) string { return f.Action.String() })
	iface := note("interface", interfaceOf(from) != interfaceOf(to), interfaceOf)
	note("latency", from.Latency != to.Latency, func(f *flow.Flow) string { return strconv.FormatBool(f.Latency) })
	note("backend", backendOf(from) != backendOf(to), backendOf)
	note("labels", !maps.Equal(from.Labels, to.Labels), func(f *flow.Flow) string { return labelText(f.Labels) })
	return out, match || direction || iface
}

func labelText(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ",")
}
