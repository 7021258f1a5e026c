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
		d.badWord(spot{n, words, e.Index}, what, e, e.Offset-startOf(s, words, e.Index))
	}
	return m
}

// startOf returns the offset of words[index] in the text that was split into words.
func startOf(text string, words []string, index int) int {
	if index >= len(words) {
		return len(text)
	}
	at := 0
	for _, w := range words[:index] {
		at += strings.Index(text[at:], w) + len(w)
	}
	return at + strings.Index(text[at:], words[index])
}

// spot is the place of a word of a match: the word words[index] of the scalar n, or all of n if words is nil.
type spot struct {
	n     *yaml.Node
	words []string
	index int
}

// badWord reports a mistake at the place of its word, or so many bytes into it: a value of a set.
func (d *decoder) badWord(at spot, what string, e *flow.ParseError, within int) {
	if d.count >= mostProblems {
		d.count++
		return
	}
	msg := what + ": " + message(e)
	if at.words == nil {
		d.bad(at.n, msg, e.Suggestion)
	} else if line, col, found := d.src.find(at.n, at.words, at.index); found {
		d.badAt(line, col+within, utf8.RuneCountInString(e.Word), msg, e.Suggestion)
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
			d.badWord(w.spots[e.Index], what, e, e.Offset-w.starts[e.Index])
		} else if d.count == before { // otherwise w.match has reported why a word is missing
			d.bad(n, what+": "+message(e), e.Suggestion)
		}
	}
	return m
}

// wording collects the words of a match and their places.
type wording struct {
	d      *decoder
	words  []flow.Word
	spots  []spot
	starts []int // the offset of each word, as flow.ParseWords counts it
	end    int   // the offset of the next one
}

func (w *wording) add(text string, n *yaml.Node, value bool) {
	w.place(flow.Word{Text: text, Value: value}, spot{n: n})
}

func (w *wording) place(word flow.Word, at spot) {
	w.words = append(w.words, word)
	w.spots = append(w.spots, at)
	w.starts = append(w.starts, w.end)
	w.end += len(word.Text) + 1
}

// addSplit adds each word of a scalar.
func (w *wording) addSplit(n *yaml.Node, value bool) {
	words := split(n.Value)
	for i, text := range words {
		w.place(flow.Word{Text: text, Value: value}, spot{n, words, i})
	}
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
		case !slices.Contains(fields, field) && isNull(value) && isElement(field):
			w.d.bad(key, fmt.Sprintf("%s has no field %q", what, clip(field)), "write several values as a list: [22, 80]")
		case !slices.Contains(fields, field):
			w.unknown(key, what, fields)
		case field == "inner" && inside:
			w.d.bad(key, what+": headers inside two tunnels are not looked at", "leave it out")
		case field == "inner":
			inner = func() { w.inner(key, value, what+".inner") }
		case isNull(value) || value.Kind == yaml.ScalarNode && value.Value == "":
			w.d.bad(key, fmt.Sprintf("%s.%s has no value", what, field), "leave the field out to match any")
		default:
			w.value(key, value, what+"."+field)
		}
	})
	if inner != nil {
		inner()
	}
}

// isElement reports whether a key is rather a value of a set whose braces are missing.
func isElement(key string) bool { return key != "" && strings.Trim(key, "0123456789./:-") == "" }

// value adds a field with its value, or with several as a list: dport: [22, 80]. YAML reads {22, 80} as a mapping of two
// names to nothing.
func (w *wording) value(key, n *yaml.Node, what string) {
	var elements []*yaml.Node
	switch {
	case n.Kind == yaml.SequenceNode:
		elements = n.Content
	case n.Kind == yaml.MappingNode && namesAlone(n):
		for i := 0; i < len(n.Content); i += 2 {
			elements = append(elements, n.Content[i])
		}
	default:
		s, ok := w.d.scalar(n, what)
		if !ok {
			return
		}
		w.add(key.Value, key, false)
		if strings.HasPrefix(s, "!=") || strings.ContainsAny(s, "{,") {
			w.addSplit(n, true)
		} else {
			w.add(s, n, true)
		}
		return
	}

	before := w.d.count
	for i, e := range elements {
		w.checkElement(e, fmt.Sprintf("%s[%d]", what, i))
	}
	if w.d.count > before {
		return
	}
	w.add(key.Value, key, false)
	w.add("{", n, true)
	for i, e := range elements {
		if i > 0 {
			w.add(",", e, true)
		}
		w.add(e.Value, e, true)
	}
	w.add("}", n, true)
}

// checkElement reports an element of a list that is not one value. The parser of the text form would end a value at a comma, and
// leave out an empty one at the end: [syn, "syn,ack"] would match other packets than were meant.
func (w *wording) checkElement(n *yaml.Node, what string) {
	s, ok := w.d.scalar(n, what)
	switch {
	case !ok:
	case s == "":
		w.d.bad(n, what+" has no value", "leave the element out")
	case strings.Contains(s, ","):
		w.d.bad(n, fmt.Sprintf("%s: %q is not one value", what, clip(s)), `write an element for each value; "|" joins TCP flags`)
	case strings.ContainsAny(s, "{} \t\r\n"):
		w.d.bad(n, fmt.Sprintf("%s: %q is not one value", what, clip(s)), "write an element for each value")
	}
}

// namesAlone reports whether a mapping has nothing but names, as {22, 80} has.
func namesAlone(n *yaml.Node) bool {
	for i := 1; i < len(n.Content); i += 2 {
		if !isNull(n.Content[i]) {
			return false
		}
	}
	return len(n.Content) > 0
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
		w.addSplit(n, false)
	default:
		w.d.bad(n, fmt.Sprintf("%s is a match, not %s", what, kindOf(n)), `write it as a mapping or as text, or "any"`)
		w.add("any", n, false)
	}
}
