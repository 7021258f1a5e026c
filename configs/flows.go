package configs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/spelling"
)

// flows decodes the flows of one file into cfg. first has the place of each name in all files. sure says that the
// interfaces have no mistake, so that references to them can be checked.
func (d *decoder) flows(n *yaml.Node, cfg *dataplane.Config, sure bool, first map[string]place) {
	names := make([]string, len(cfg.Interfaces))
	for i, in := range cfg.Interfaces {
		names[i] = in.Name
	}
	r := newFlowReader(d)
	defer func() { d.in = element{} }()

	d.sequence(n, "flows", func(i int, n *yaml.Node) {
		d.in = element{"flows", i}
		before := d.count
		f := r.read(n)
		if !d.anySet && d.count < mostProblems {
			d.knowsSets(f, cfg.Sets, r.at["match"])
		}

		if there, twice := first[f.Name]; twice && f.Name != "" {
			d.bad(r.at["name"], fmt.Sprintf(": flow %q is there already, %s", clip(f.Name), there.from(d)), "rename one of them")
		} else if node := r.at["name"]; node != nil {
			first[f.Name] = place{d.file, node.Line}
		}

		if sure && len(cfg.Interfaces) > 0 && d.count == before {
			d.reach(f, names, cfg.Interfaces, n, r.at)
		} else if sure && f.Interface != "" && len(cfg.Interfaces) == 0 {
			d.bad(r.at["interface"], fmt.Sprintf(": interface %q is not listed under interfaces", clip(f.Interface)), "add it there")
		}
		if d.count == before {
			cfg.Flows = append(cfg.Flows, f)
		}
	})
}

// knowsSets reports a set that a flow names and the configuration lacks. n is the match.
func (d *decoder) knowsSets(f flow.Flow, sets []dataplane.Set, n *yaml.Node) {
	var bad *flow.FieldError
	if !errors.As(dataplane.KnowsSets(sets, f), &bad) {
		return
	}
	words := split(n.Value) // none of a mapping
	at := slices.IndexFunc(words, func(w string) bool { return strings.HasSuffix(bad.Cause, " "+strings.TrimPrefix(w, "!=")) })
	if at < 0 {
		d.bad(n, ".match: "+bad.Cause, bad.Fix)
		return
	}
	d.badWord(spot{n, words, at}, ".match", &flow.ParseError{Word: words[at], Message: bad.Cause, Suggestion: bad.Fix}, 0)
}

// reach reports a flow that no interface can count.
func (d *decoder) reach(f flow.Flow, names []string, list []dataplane.Interface, n *yaml.Node, at map[string]*yaml.Node) {
	if dataplane.ReachesInterface(list, f) == nil {
		return
	}
	where := n
	for _, field := range []string{"direction", "interface"} {
		if at[field] != nil {
			where = at[field]
		}
	}
	i, listed := dataplane.FindInterface(list, f.Interface)
	switch {
	case f.Interface == "":
		d.bad(where, fmt.Sprintf(": no interface counts %s flows", f.Direction), fmt.Sprintf("give one of them direction both or %s", f.Direction))
	case !listed:
		suggestion := "add it there"
		if near := spelling.Nearest(f.Interface, names); near != "" {
			suggestion = fmt.Sprintf("did you mean %q?", near)
		}
		d.bad(where, fmt.Sprintf(": interface %q is not listed under interfaces", clip(f.Interface)), suggestion)
	case i.IsPattern() && i.Name == f.Interface:
		d.bad(where, fmt.Sprintf(": interface %q is a pattern", clip(f.Interface)), "name one interface, or leave the interface out for all of them")
	default:
		d.bad(where, fmt.Sprintf(": interface %q counts %s flows alone", clip(f.Interface), i.Direction), "change its direction or the flow's")
	}
}

// flowReader decodes flows one after the other. It reuses its entries and its map, because there may be 100,000 flows.
type flowReader struct {
	d       *decoder
	entries []entry
	at      map[string]*yaml.Node // nodes of the last flow, by field

	// The flow being decoded, and its fields of other types.
	f                 flow.Flow
	priority          int
	direction, action string
}

func newFlowReader(d *decoder) *flowReader {
	r := &flowReader{d: d, at: make(map[string]*yaml.Node)}
	note := func(read func(key, value *yaml.Node)) func(key, value *yaml.Node) {
		return func(key, value *yaml.Node) {
			r.at[key.Value] = value
			read(key, value)
		}
	}
	r.entries = []entry{
		{"name", note(d.text(&r.f.Name, ".name"))},
		{"match", note(func(_, v *yaml.Node) { r.f.Match = d.match(v, ".match") })},
		{"priority", d.int(&r.priority, ".priority", 0, 65535)},
		{"direction", note(word(d, &r.direction, ".direction", "ingress", "egress"))},
		{"action", word(d, &r.action, ".action", "count", "drop")},
		{"interface", note(d.text(&r.f.Interface, ".interface"))},
		{"backend", word(d, &r.f.Backend, ".backend", flow.Backends()...)},
		{"latency", d.bool(&r.f.Latency, ".latency")},
		{"labels", note(func(_, v *yaml.Node) { r.labels(v) })},
	}
	return r
}

// read decodes one flow.
func (r *flowReader) read(n *yaml.Node) flow.Flow {
	d := r.d
	clear(r.at)
	r.f = flow.Flow{}
	r.priority = 0
	r.direction = ""
	r.action = ""

	before := d.count
	d.mapping(n, "", r.entries...)
	if n.Kind != yaml.MappingNode && !isNull(n) {
		return flow.Flow{}
	}

	f := r.f
	f.Priority = uint16(r.priority)
	if r.direction == "egress" {
		f.Direction = flow.Egress
	}
	if r.action == "drop" {
		f.Action = flow.Drop
	}
	if r.at["match"] == nil && d.count == before {
		d.bad(n, ": the flow has no match", `write the packets to count, or "match: any" for every packet`)
	}
	d.rules(n, f, r.at)
	return f
}

// labels decodes the labels of the flow. It stops at the limit, so that a huge mapping does not take memory.
func (r *flowReader) labels(n *yaml.Node) {
	d := r.d
	total := 0
	d.fields(n, ".labels", func(key, value *yaml.Node) {
		if total += len(key.Value) + len(value.Value) + 2; total > mostLabelBytes {
			return // report only the sum, below
		}
		if r.f.Labels == nil {
			r.f.Labels = make(map[string]string)
		}
		r.at["labels["+key.Value+"]"] = key
		if !isNull(value) {
			r.f.Labels[key.Value], _ = d.scalar(value, ".labels."+clip(key.Value))
		} else {
			r.f.Labels[key.Value] = ""
		}
	})
	if total > mostLabelBytes {
		r.f.Labels = nil
		d.bad(n, fmt.Sprintf(".labels: they take %d bytes together, more than %d", total, mostLabelBytes), "shorten them or leave some out")
	}
}

// rules validates the flow, and reports each error of package flow at its place in the file.
func (d *decoder) rules(n *yaml.Node, f flow.Flow, at map[string]*yaml.Node) {
	f.Match = flow.Match{} // already checked by match
	err := f.Validate()
	if err == nil {
		return
	}
	for _, part := range err.(interface{ Unwrap() []error }).Unwrap() {
		var broken *flow.FieldError
		if !errors.As(part, &broken) {
			continue
		}
		where := n
		if node := at[broken.Field]; node != nil {
			where = node
		} else if i := strings.IndexByte(broken.Field, '['); i > 0 && at[broken.Field[:i]] != nil {
			where = at[broken.Field[:i]]
		}
		if where.Kind != yaml.ScalarNode && strings.HasPrefix(broken.Field, "name") && where != n {
			continue // text has already reported that the name is not a scalar
		}
		d.bad(where, fmt.Sprintf(".%s: %s", broken.Field, broken.Cause), broken.Fix)
	}
}
