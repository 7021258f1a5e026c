package configs

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/internal/spelling"
)

// A file with one of these fields is a configuration.
var (
	mainFields = []string{
		"instance", "backend", "start", "include", "interfaces", "mirror", "poll", "xdp", "rdma", "sets", "flows", "queue_pairs", "words",
	}
	fragmentFields = []string{"interfaces", "flows", "queue_pairs"}
	flowFields     = []string{"name", "match", "priority", "direction", "action", "interface", "backend", "latency", "labels"}
)

// linesGuessed limits the search for misspelled fields, which is slow.
const linesGuessed = 1000

// ours reports whether a line of the text begins with one of the fields, even a misspelled one. The text need not be valid
// YAML.
//
// This protects secrets. An include path may lead to any file of the host, such as a private key, and the error would show
// its lines to whoever reads the log.
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

// oursIn is like ours for valid YAML: it looks for the fields in a mapping, or in the mappings of a list.
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

// foreign reports that the file is no configuration, instead of its other mistakes.
func (d *decoder) foreign(line, col int) {
	d.hidden = true
	d.badAt(line, col, 1, "this is none of our files, so no line of it is shown: it has no field of ours", "its fields are "+strings.Join(d.own, ", "))
}
