// Package completion completes command lines in shells: the scripts that a shell sources, and the walk over the model of
// the command line that they ask for candidates.
package completion

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Complete walks the model along the words before the last, and returns the candidates for the
// last. valuesOf returns the values of a flag or an argument; given are the values of the flags before it.
func Complete(node *kong.Node, words []string, valuesOf func(v *kong.Value, given map[string]string) []string) []string {
	before, last := words[:len(words)-1], words[len(words)-1]
	given := map[string]string{} // values of flags that candidates depend on
	args := 0
	var pending *kong.Flag // a flag that waits for its value
	for _, w := range before {
		switch {
		case pending != nil:
			given[pending.Name], pending = w, nil
		case strings.HasPrefix(w, "-"):
			name, value, hasValue := strings.Cut(w, "=")
			if f := findFlag(node, name); f != nil {
				given[f.Name] = value
				if !hasValue && !f.IsBool() {
					pending = f
				}
			}
		default:
			if child := findChild(node, w); child != nil {
				node, args = child, 0
			} else {
				args++
			}
		}
	}
	var out []string
	name, value, hasValue := strings.Cut(last, "=")
	switch {
	case pending != nil:
		out = valuesOf(pending.Value, given)
	case strings.HasPrefix(last, "-") && hasValue:
		if f := findFlag(node, name); f != nil {
			for _, v := range valuesOf(f.Value, given) {
				if strings.HasPrefix(v, value) {
					out = append(out, name+"="+v)
				}
			}
		}
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				out = append(out, "--"+f.Name)
			}
		}
	case len(node.Children) > 0:
		for _, child := range node.Children {
			if !child.Hidden {
				out = append(out, child.Name)
			}
		}
	case len(node.Positional) > 0:
		p := node.Positional[min(args, len(node.Positional)-1)]
		if args < len(node.Positional) || p.IsCumulative() {
			// The command would take a counter with such a name for a flag.
			out = slices.DeleteFunc(valuesOf(p, given), func(s string) bool { return strings.HasPrefix(s, "-") })
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return !strings.HasPrefix(s, last) })
}

func findChild(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name || slices.Contains(child.Aliases, name) {
			return child
		}
	}
	return nil
}

func findFlag(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}
