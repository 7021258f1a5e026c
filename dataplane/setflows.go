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

// SetOptions modify [Service.SetFlows]. With the zero value the instance has exactly the given flows afterwards.
type SetOptions struct {
	// DryRun returns the difference without changing anything. It validates the flows, but cannot tell whether a
	// backend or a device would accept them.
	DryRun bool

	// Cost makes a DryRun also compute [Difference.Cost], and fail with ErrCostly if the change would. It takes as long
	// as building the search tables of all flows.
	Cost bool

	// KeepOthers keeps all existing flows. Those not given stay as they are.
	KeepOthers bool

	// Keep names existing flows that stay although they are not given. They keep their order and come after the given
	// flows. Unknown names are ignored.
	Keep []string

	// KeepAdded keeps, like Keep, every flow that came by AddFlows and was in no SetFlows since.
	KeepAdded bool

	// Config also changes the settings of the instance, together with the flows: both change, or on error neither. nil
	// leaves the settings alone. Config.Flows is ignored.
	//
	// The call fails with ErrRestart if a setting cannot change at run time. An interface that cannot be counted on is an
	// error unless the instance was started with [StartDegraded], and a missing interface is waited for. Interfaces that
	// stay do not miss a packet. Every flow must still have an interface ([ReachesInterface]).
	Config *Config

	// Renames has the new name of a flow by its old name. A renamed flow keeps its total. The flow must be given under
	// its new name, which no other flow may have, and not under its old one. Renames already made are ignored, so a
	// call can be repeated.
	Renames map[string]string
}

// Difference is what SetFlows changes. Its lists are ordered by name.
type Difference struct {
	// Settings has the changed settings by their names in a configuration file, such as "poll.period". It is empty
	// without [SetOptions.Config].
	Settings []FieldChange
	Added    []string
	Removed  []string

	// Renamed has the flows with a new name. If other fields changed too, the flow is also in Changed.
	Renamed []Rename

	// Changed has the flows with other fields than before, by their new names.
	Changed []FlowChange

	// Unchanged counts the other flows.
	Unchanged int

	// Cost is the cost of a packet after the change. It is nil without [SetOptions.Cost], or if XDP counts no flow.
	Cost *Cost
}

// Rename is the old and the new name of a flow.
type Rename struct{ From, To string }

// FlowChange is the change of one flow.
type FlowChange struct {
	Name   string
	Fields []FieldChange // in the order of the fields of flow.Flow
	// Anew is set if the flow now matches other packets, so that its total starts again from 0.
	Anew bool
}

// FieldChange is the change of one field of a flow, or of one setting.
type FieldChange struct {
	// Field is the name of the setting, or of the field as in a configuration file. It is "order" if the flow now comes
	// after another flow of its priority, and both can match one packet.
	Field string
	// From and To are the old and the new value as text. For "order", To is "behind " and the name of the other flow.
	From, To string
}

// Empty reports whether nothing changes.
func (d Difference) Empty() bool {
	return len(d.Settings)+len(d.Added)+len(d.Removed)+len(d.Renamed)+len(d.Changed) == 0
}

// String returns one line for each changed setting, followed by one line for each changed flow, ordered by name:
//
//	~ setting poll.period: 10ms -> 5ms
//	~ dns: count -> drop
//	~ front: was web
//	- old
//	~ ssh: match "tcp dport 22" -> "tcp dport 2222", counts anew
//	+ web2
//
// It is empty if nothing changes.
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

// DiffFlows returns what SetFlows(flows, opts) would change in an instance with the current flows. It does not compare the
// order of flows of equal priority. It fails with [ErrInvalid], or because of a rename with [ErrExists] or [ErrNotFound].
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
	kept := make(map[string]bool, len(flows)) // given flows that exist, by their old names
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

// relevant returns the current flows that are given or renamed, by name. The map is small even if one flow of 100,000
// changes.
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

// rest decides which of the flows not given stay, and which are removed.
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

// renamed checks the renames and returns the old name of each renamed flow by its new one.
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
		case was[from] == nil: // already renamed by an earlier call
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
	// Format only fields that differ. Most flows of a large set do not change.
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
