package configs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/spelling"
)

// match decodes a match, either text or a mapping.
func (d *decoder) match(n *yaml.Node, what string) flow.Match {
	if n.Kind == yaml.MappingNode {
		return d.matchMapping(n, what)
	}
	s, ok := d.scalar(n, what)
	if !ok {
		return flow.Match{}
	}
	m, err := flow.ParseMatch(s)
	if err == nil {
		return m
	}
	var mistakes flow.ParseErrors
	if !errors.As(err, &mistakes) {
		return m
	}
	words := split(s)
	for _, e := range mistakes {
		d.badWord(spot{n, words, e.Index}, what, e)
	}
	return m
}

// spot is the place of a word of a match: the word words[index] of the scalar n, or all of n if words is nil.
type spot struct {
	n     *yaml.Node
	words []string
	index int
}

// badWord reports a mistake at the place of its word.
func (d *decoder) badWord(at spot, what string, e *flow.ParseError) {
	if d.count >= mostProblems {
		d.count++
		return
	}
	msg := what + ": " + message(e)
	if at.words == nil {
		d.bad(at.n, msg, e.Suggestion)
	} else if line, col, found := d.src.find(at.n, at.words, at.index); found {
		d.badAt(line, col, utf8.RuneCountInString(e.Word), msg, e.Suggestion)
	} else {
		d.badAt(at.n.Line, at.n.Column, 1, msg, e.Suggestion)
	}
}

// split splits a text into words in the same way as flow.ParseMatch.
func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' })
}

func message(e *flow.ParseError) string {
	if e.Word == "" {
		return e.Message
	}
	return fmt.Sprintf("%q: %s", clip(e.Word), e.Message)
}

// matchMapping decodes a mapping. It turns the mapping into words for the parser of package flow, so that both forms of a
// match obey the same rules, and notes the node of each word for error messages.
func (d *decoder) matchMapping(n *yaml.Node, what string) flow.Match {
	w := &wording{d: d}
	before := d.count
	w.match(n, what, false)
	m, err := flow.ParseWords(w.words)
	var mistakes flow.ParseErrors
	if !errors.As(err, &mistakes) {
		return m
	}
	for _, e := range mistakes {
		if e.Index < len(w.spots) {
			d.badWord(w.spots[e.Index], what, e)
		} else if d.count == before { // otherwise w.match has reported why a word is missing
			d.bad(n, what+": "+message(e), e.Suggestion)
		}
	}
	return m
}

// wording collects the words of a match and their places.
type wording struct {
	d     *decoder
	words []flow.Word
	spots []spot
}

func (w *wording) add(text string, n *yaml.Node, value bool) {
	w.words = append(w.words, flow.Word{Text: text, Value: value})
	w.spots = append(w.spots, spot{n: n})
}

func (w *wording) match(n *yaml.Node, what string, inside bool) {
	clauses := flow.Clauses()
	var tunnels []func()
	start := len(w.words)
	w.d.fields(n, what, func(key, value *yaml.Node) {
		name := key.Value
		switch {
		case !slices.Contains(clauses, name):
			w.unknown(key, what, clauses)
		case name == "vlan" && value.Kind == yaml.SequenceNode:
			for i, tag := range value.Content {
				if w.d.count > mostCounted {
					return
				}
				w.clause(name, key, tag, fmt.Sprintf("%s.vlan[%d]", what, i), inside)
			}
		case slices.Contains(flow.Fields(name), "inner"):
			// In the text form an inner match extends to the end, so tunnels must come last.
			tunnels = append(tunnels, func() { w.clause(name, key, value, what+"."+name, inside) })
		default:
			w.clause(name, key, value, what+"."+name, inside)
		}
	})
	for _, tunnel := range tunnels {
		tunnel()
	}
	if len(w.words) == start {
		w.add("any", n, false)
	}
}

func (w *wording) unknown(key *yaml.Node, what string, known []string) {
	for _, clause := range flow.Clauses() {
		if slices.Contains(flow.Fields(clause), key.Value) && spelling.Nearest(key.Value, known) == "" {
			w.d.bad(key, fmt.Sprintf("%s has no field %q", what, clip(key.Value)), fmt.Sprintf("it is a field of %s", clause))
			return
		}
	}
	w.d.unknown(key, what, known)
}

func (w *wording) clause(name string, key, n *yaml.Node, what string, inside bool) {
	w.add(name, key, false)
	fields := flow.Fields(name)
	if len(fields) == 0 && !isNull(n) && (n.Kind != yaml.MappingNode || len(n.Content) > 0) {
		w.d.bad(n, what+" has no fields and takes no value", "write it as: "+name+":")
		return
	}
	var inner func()
	w.d.fields(n, what, func(key, value *yaml.Node) {
		field := key.Value
		switch {
		case !slices.Contains(fields, field):
			w.unknown(key, what, fields)
		case field == "inner" && inside:
			w.d.bad(key, what+": headers inside two tunnels are not looked at", "leave it out")
		case field == "inner":
			inner = func() { w.inner(key, value, what+".inner") }
		case isNull(value) || value.Kind == yaml.ScalarNode && value.Value == "":
			w.d.bad(key, fmt.Sprintf("%s.%s has no value", what, field), "leave the field out to match any")
		default:
			if s, ok := w.d.scalar(value, what+"."+field); ok {
				w.add(field, key, false)
				w.add(s, value, true)
			}
		}
	})
	if inner != nil {
		inner()
	}
}

// inner adds the match inside a tunnel, either text or a mapping.
func (w *wording) inner(key, n *yaml.Node, what string) {
	w.add("inner", key, false)
	switch {
	case n.Kind == yaml.MappingNode:
		w.match(n, what, true)
	case isNull(n) || n.Kind == yaml.ScalarNode && n.Value == "any":
		w.add("any", n, false)
	case n.Kind == yaml.ScalarNode:
		words := split(n.Value)
		for i, text := range words {
			w.words = append(w.words, flow.Word{Text: text})
			w.spots = append(w.spots, spot{n, words, i})
		}
	default:
		w.d.bad(n, fmt.Sprintf("%s is a match, not %s", what, kindOf(n)), `write it as a mapping or as text, or "any"`)
		w.add("any", n, false)
	}
}
