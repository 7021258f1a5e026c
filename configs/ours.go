package configs

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/internal/spelling"
)

// The fields by which a file is known as one of ours.
var (
	mainFields = []string{
		"instance", "backend", "start", "include", "interfaces", "mirror", "poll", "xdp", "rdma", "flows", "queue_pairs", "words",
	}
	fragmentFields = []string{"interfaces", "flows", "queue_pairs"}
	flowFields     = []string{"name", "match", "priority", "direction", "action", "interface", "backend", "latency", "labels"}
)

// linesGuessed is on how many lines a misspelt field is looked for.
const linesGuessed = 1000

// ours reports whether a text, which may be no YAML, has a line that begins with one of our fields. An error shows no
// line of another text: a path may name a file of secrets, and its author need not be the one who reads it.
func ours(text string, fields []string) bool {
	n := 0
	for line := range strings.Lines(text) {
		name, _, found := strings.Cut(strings.TrimLeft(line, " \t-{"), ":")
		if !found {
			continue
		}
		name = strings.Trim(name, ` "'`)
		if slices.Contains(fields, name) {
			return true
		}
		if n++; n <= linesGuessed && spelling.Nearest(name, fields) != "" {
			return true
		}
	}
	return false
}

// oursIn reports whether a tree has one of the fields: a mapping has it itself, a list in one of its elements.
func oursIn(n *yaml.Node, fields []string) bool {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			if key := n.Content[i].Value; slices.Contains(fields, key) || i < linesGuessed && spelling.Nearest(key, fields) != "" {
				return true
			}
		}
	case yaml.SequenceNode:
		return slices.ContainsFunc(n.Content, func(e *yaml.Node) bool { return e.Kind == yaml.MappingNode && oursIn(e, fields) })
	}
	return n.Kind != yaml.ScalarNode && len(n.Content) == 0 || isNull(n)
}

// foreign reports a file that has none of our fields, in place of every other mistake in it.
func (d *decoder) foreign(line, col int) {
	d.hidden = true
	d.badAt(line, col, 1, "this is none of our files, so no line of it is shown: it has no field of ours", "its fields are "+strings.Join(d.own, ", "))
}
