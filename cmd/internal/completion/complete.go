// Package completion completes command lines in shells. It has the scripts for a shell to source, and the search for
// candidates that these scripts call.
package completion

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Complete returns the candidates for the last word, given the words before it. valuesOf must return the possible values
// of a flag or an argument; its argument given has the values of the flags so far.
func Complete(node *kong.Node, words []string, valuesOf func(v *kong.Value, given map[string]string) []string) []string {
	w := walk{node: node, given: map[string]string{}}
	before, last := words[:len(words)-1], words[len(words)-1]
	for _, word := range before {
		w.step(word)
	}
	return slices.DeleteFunc(w.candidates(last, valuesOf), func(s string) bool { return !strings.HasPrefix(s, last) })
}

// walk is a position in the model of the command line.
type walk struct {
	node    *kong.Node
	args    int               // how many arguments of the node are given
	pending *kong.Flag        // the last word, if it is a flag without its value
	given   map[string]string // value by flag
}

// step moves on by one word.
func (w *walk) step(word string) {
	switch {
	case w.pending != nil:
		w.given[w.pending.Name] = word
		w.pending = nil

	case strings.HasPrefix(word, "-"):
		name, value, hasValue := strings.Cut(word, "=")
		f := findFlag(w.node, name)
		if f == nil {
			return
		}
		w.given[f.Name] = value
		if !hasValue && !f.IsBool() {
			w.pending = f
		}

	default:
		if child := findChild(w.node, word); child != nil {
			w.node = child
			w.args = 0
		} else {
			w.args++
		}
	}
}

// candidates returns the possible words at this position. The caller filters them by the prefix last.
func (w *walk) candidates(last string, valuesOf func(v *kong.Value, given map[string]string) []string) (out []string) {
	name, _, hasValue := strings.Cut(last, "=")
	switch {
	case w.pending != nil:
		return valuesOf(w.pending.Value, w.given)

	case strings.HasPrefix(last, "-") && hasValue:
		f := findFlag(w.node, name)
		if f == nil {
			return nil
		}
		for _, v := range valuesOf(f.Value, w.given) {
			out = append(out, name+"="+v)
		}

	case strings.HasPrefix(last, "-"):
		for _, group := range w.node.AllFlags(true) {
			for _, f := range group {
				out = append(out, "--"+f.Name)
			}
		}

	case len(w.node.Children) > 0:
		for _, child := range w.node.Children {
			if !child.Hidden {
				out = append(out, child.Name)
			}
		}

	case len(w.node.Positional) > 0:
		p := w.node.Positional[min(w.args, len(w.node.Positional)-1)]
		if w.args >= len(w.node.Positional) && !p.IsCumulative() {
			return nil
		}
		// The names come from a mirror, and a name with a dash would change the command by becoming a flag.
		return slices.DeleteFunc(valuesOf(p, w.given), func(s string) bool { return strings.HasPrefix(s, "-") })
	}
	return out
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
