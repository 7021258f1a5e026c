package configs

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// flows reads the flows of one file into cfg. first has the places of the names in all files. sure says that the
// interfaces were read without a mistake, so that a reference to one can be checked.
func (d *decoder) flows(n *yaml.Node, cfg *dataplane.Config, sure bool, first map[string]place) {
	names := make([]string, len(cfg.Interfaces))
	for i, in := range cfg.Interfaces {
		names[i] = in.Name
	}
	d.sequence(n, "flows", func(i int, n *yaml.Node) {
		what := fmt.Sprintf("flows[%d]", i)
		before := d.count
		f, at := d.flow(n, what)
		if there, twice := first[f.Name]; twice && f.Name != "" {
			d.bad(at["name"], fmt.Sprintf("%s: flow %q is there already, %s", what, clip(f.Name), there.from(d)), "rename one of them")
		} else if node := at["name"]; node != nil {
			first[f.Name] = place{d.file, node.Line}
		}
		if sure && len(cfg.Interfaces) > 0 && d.count == before {
			d.reach(f, names, cfg.Interfaces, what, n, at)
		} else if sure && f.Interface != "" && len(cfg.Interfaces) == 0 {
			d.bad(at["interface"], fmt.Sprintf("%s: interface %q is not listed under interfaces", what, clip(f.Interface)), "add it there")
		}
		if d.count == before {
			cfg.Flows = append(cfg.Flows, f)
		}
	})
}

// reach reports a flow that is counted on no interface.
func (d *decoder) reach(f flow.Flow, names []string, list []dataplane.Interface, what string, n *yaml.Node, at map[string]*yaml.Node) {
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
		d.bad(where, fmt.Sprintf("%s: no interface counts %s flows", what, f.Direction), fmt.Sprintf("give one of them direction both or %s", f.Direction))
	case !listed:
		suggestion := "add it there"
		if near := flow.Nearest(f.Interface, names); near != "" {
			suggestion = fmt.Sprintf("did you mean %q?", near)
		}
		d.bad(where, fmt.Sprintf("%s: interface %q is not listed under interfaces", what, clip(f.Interface)), suggestion)
	case i.IsPattern() && i.Name == f.Interface:
		d.bad(where, fmt.Sprintf("%s: interface %q is a pattern", what, clip(f.Interface)), "name one interface, or leave the interface out for all of them")
	default:
		d.bad(where, fmt.Sprintf("%s: interface %q counts %s flows alone", what, clip(f.Interface), i.Direction), "change its direction or the flow's")
	}
}

// flow reads one flow; at says where its parts stand.
func (d *decoder) flow(n *yaml.Node, what string) (f flow.Flow, at map[string]*yaml.Node) {
	at = make(map[string]*yaml.Node)
	note := func(read func(key, value *yaml.Node)) func(key, value *yaml.Node) {
		return func(key, value *yaml.Node) {
			at[key.Value] = value
			read(key, value)
		}
	}
	var priority int
	var direction, action string
	before := d.count
	d.mapping(n, what,
		entry{"name", note(d.text(&f.Name, what+".name"))},
		entry{"match", note(func(_, v *yaml.Node) { f.Match = d.match(v, what+".match") })},
		entry{"priority", d.int(&priority, what+".priority", 0, 65535)},
		entry{"direction", note(word(d, &direction, what+".direction", "ingress", "egress"))},
		entry{"action", word(d, &action, what+".action", "count", "drop")},
		entry{"interface", note(d.text(&f.Interface, what+".interface"))},
		entry{"backend", word(d, &f.Backend, what+".backend", flow.Backends()...)},
		entry{"latency", d.bool(&f.Latency, what+".latency")},
		entry{"labels", note(func(_, v *yaml.Node) {
			total := 0
			defer func() {
				if total > mostLabelBytes {
					f.Labels = nil
					d.bad(v, fmt.Sprintf("%s.labels: they take %d bytes together, more than %d", what, total, mostLabelBytes), "shorten them or leave some out")
				}
			}()
			d.fields(v, what+".labels", func(key, value *yaml.Node) {
				if total += len(key.Value) + len(value.Value) + 2; total > mostLabelBytes {
					return // whatever follows, the sum is the mistake
				}
				if f.Labels == nil {
					f.Labels = make(map[string]string)
				}
				at["labels["+key.Value+"]"] = key
				if !isNull(value) {
					f.Labels[key.Value], _ = d.scalar(value, what+".labels."+clip(key.Value))
				} else {
					f.Labels[key.Value] = ""
				}
			})
		})},
	)
	if n.Kind != yaml.MappingNode && !isNull(n) {
		return flow.Flow{}, at
	}
	f.Priority = uint16(priority)
	if direction == "egress" {
		f.Direction = flow.Egress
	}
	if action == "drop" {
		f.Action = flow.Drop
	}
	if at["match"] == nil && d.count == before {
		d.bad(n, what+": the flow has no match", `write the packets to count, or "match: any" for every packet`)
	}
	d.rules(n, f, what, at)
	return f, at
}

// rules gives the errors of package flow their place in the file.
func (d *decoder) rules(n *yaml.Node, f flow.Flow, what string, at map[string]*yaml.Node) {
	f.Match = flow.Match{} // was checked where it was read
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
			continue // what stands there was refused already
		}
		d.bad(where, fmt.Sprintf("%s.%s: %s", what, broken.Field, broken.Cause), broken.Fix)
	}
}
