package configs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/spelling"
)

// decoder walks a tree of YAML nodes and collects every mistake on the way.
type decoder struct {
	file     string
	src      *source
	own      []string            // the fields by which the file is known as one of ours
	allowed  *allowance          // shared with the files that it includes
	hidden   bool                // it is not one of ours: no line of it is shown
	problems []Problem           // the first mostProblems
	count    int                 // of all
	in       element             // that is being read
	wrong    map[*yaml.Node]bool // the keys and values that a mistake was found in
	opened   *os.File            // the file, which may include others; nil for a text
	included []*fragment
	paths    []string // of the included files and directories
}

// These bound the work on a file that is wrong all over.
const (
	mostProblems = 1000    // are kept
	mostCounted  = 1 << 15 // are counted; lists and mappings end there
)

func (d *decoder) bad(n *yaml.Node, msg, suggestion string) {
	if d.wrong == nil {
		d.wrong = make(map[*yaml.Node]bool)
	}
	d.wrong[n] = true
	width := 1
	if n.Kind == yaml.ScalarNode {
		width = utf8.RuneCountInString(n.Value)
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			width += 2
		}
	}
	d.badAt(n.Line, n.Column, width, msg, suggestion)
}

// element is one of a list. Its text begins the messages about it, in which the rest of a path follows.
type element struct {
	list  string // empty: none
	index int
}

func (e element) String() string {
	if e.list == "" {
		return ""
	}
	return fmt.Sprintf("%s[%d]", e.list, e.index)
}

func (d *decoder) badAt(line, col, width int, msg, suggestion string) {
	if d.count++; d.count > mostProblems {
		return
	}
	p := Problem{File: d.file, Line: line, Col: col, Width: width, Msg: d.in.String() + msg, Suggestion: suggestion}
	length := d.src.runes(line)
	if !d.hidden {
		p.Source = d.src.line(line)
	}
	// A mark does not go on past the end of its line.
	p.Width = max(1, min(p.Width, length-p.Col+1))
	d.problems = append(d.problems, p)
}

// entry is one field of a mapping.
type entry struct {
	name string
	read func(key, value *yaml.Node)
}

// mapping reads the fields of a mapping. An empty value is an empty mapping;
// an empty field is left out.
func (d *decoder) mapping(n *yaml.Node, what string, entries ...entry) {
	d.fields(n, what, func(key, value *yaml.Node) {
		for i := range entries {
			if e := &entries[i]; e.name == key.Value {
				if !isNull(value) {
					e.read(key, value)
				}
				return
			}
		}
		names := make([]string, len(entries))
		for i, e := range entries {
			names[i] = e.name
		}
		d.unknown(key, what, names)
	})
}

func (d *decoder) unknown(key *yaml.Node, what string, names []string) {
	if d.count >= mostProblems { // no suggestion is shown
		d.bad(key, "", "")
		return
	}
	suggestion := "its fields are " + strings.Join(names, ", ")
	flags, _, _ := strings.Cut(key.Value, "/")
	if near := spelling.Nearest(key.Value, names); near != "" {
		suggestion = fmt.Sprintf("did you mean %q?", near)
	} else if _, err := flow.ParseMatch("tcp flags " + flags); err == nil {
		suggestion = "quote a match with TCP flags: a comma within braces ends it"
	}
	d.bad(key, fmt.Sprintf("%s has no field %q", what, clip(key.Value)), suggestion)
}

// fields calls read with each key and value of a mapping, each key once.
func (d *decoder) fields(n *yaml.Node, what string, read func(key, value *yaml.Node)) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.bad(n, fmt.Sprintf("%s is a mapping of fields, not %s", what, kindOf(n)), "write it as: field: value")
		return
	}
	earlier := newKeys(n)
	for i := 0; i+1 < len(n.Content) && d.count <= mostCounted; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.bad(key, fmt.Sprintf("%s: a field's name is a word, not %s", what, kindOf(key)), "")
			continue
		}
		if first := earlier.add(i); first != nil {
			d.bad(key, fmt.Sprintf("%s: %q is given twice, first on line %d", what, clip(key.Value), first.Line), "leave one out")
			continue
		}
		read(key, value)
	}
}

// keys finds the keys of a mapping that are given twice.
type keys struct {
	content []*yaml.Node          // keys and values in turns
	byName  map[string]*yaml.Node // of a mapping in which looking at all earlier keys would take long
}

func newKeys(n *yaml.Node) keys {
	const few = 16
	if len(n.Content) <= 2*few {
		return keys{content: n.Content}
	}
	return keys{n.Content, make(map[string]*yaml.Node)}
}

// add returns the first key of the name of content[i], or nil if that is the first itself.
func (k keys) add(i int) *yaml.Node {
	key := k.content[i]
	if k.byName != nil {
		first := k.byName[key.Value]
		if first == nil {
			k.byName[key.Value] = key
		}
		return first
	}
	for j := 0; j < i; j += 2 {
		if other := k.content[j]; other.Kind == yaml.ScalarNode && other.Value == key.Value {
			return other
		}
	}
	return nil
}

// sequence calls read with each element. An empty value has no element.
func (d *decoder) sequence(n *yaml.Node, what string, read func(i int, n *yaml.Node)) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.bad(n, fmt.Sprintf("%s is a list, not %s", what, kindOf(n)), `write it as [a, b], or as lines that start with "- "`)
		return
	}
	for i, element := range n.Content {
		if d.count > mostCounted {
			return
		}
		read(i, element)
	}
}

// scalar returns a value as it is written, however YAML would interpret it.
func (d *decoder) scalar(n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		d.bad(n, fmt.Sprintf("%s is one value, not %s", what, kindOf(n)), "")
		return "", false
	}
	return n.Value, true
}

func (d *decoder) text(to *string, what string) func(key, value *yaml.Node) {
	return func(_, n *yaml.Node) { *to, _ = d.scalar(n, what) }
}

// word reads one of the words, of a type of its own or none.
func word[W ~string](d *decoder, to *W, what string, words ...W) func(key, value *yaml.Node) {
	return func(_, n *yaml.Node) {
		s, ok := d.scalar(n, what)
		if !ok || slices.Contains(words, W(s)) {
			*to = W(s)
			return
		}
		texts := make([]string, len(words))
		for i, w := range words {
			texts[i] = string(w)
		}
		suggestion := "use " + strings.Join(texts, ", ")
		if near := spelling.Nearest(s, texts); near != "" {
			suggestion = fmt.Sprintf("did you mean %q?", near)
		}
		d.bad(n, fmt.Sprintf("%s: %q is not one of its words", what, clip(s)), suggestion)
	}
}

func (d *decoder) int(to *int, what string, least, most int) func(key, value *yaml.Node) {
	return func(_, n *yaml.Node) {
		s, ok := d.scalar(n, what)
		if !ok {
			return
		}
		v, err := strconv.ParseInt(s, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrSyntax):
			d.bad(n, fmt.Sprintf("%s: %q is no whole number", what, clip(s)), "")
		case err != nil || v < int64(least) || v > int64(most):
			d.bad(n, fmt.Sprintf("%s: %s is out of range", what, clip(s)), fmt.Sprintf("use %d to %d", least, most))
		default:
			*to = int(v)
		}
	}
}

func (d *decoder) bool(to *bool, what string) func(key, value *yaml.Node) {
	return func(_, n *yaml.Node) {
		s, ok := d.scalar(n, what)
		switch {
		case !ok:
		case s == "true" || s == "false":
			*to = s == "true"
		case slices.Contains([]string{"yes", "on", "y", "1"}, strings.ToLower(s)) || strings.EqualFold(s, "true"):
			d.bad(n, fmt.Sprintf("%s is true or false, not %q", what, clip(s)), `did you mean "true"?`)
		default:
			d.bad(n, fmt.Sprintf("%s is true or false, not %q", what, clip(s)), `did you mean "false"?`)
		}
	}
}

func (d *decoder) duration(to *time.Duration, what string, least time.Duration, fix string) func(key, value *yaml.Node) {
	return func(_, n *yaml.Node) {
		s, ok := d.scalar(n, what)
		if !ok {
			return
		}
		v, err := time.ParseDuration(s)
		switch {
		case err != nil:
			d.bad(n, fmt.Sprintf("%s: %q is no duration", what, clip(s)), durationFix(s))
		case v < 0:
			d.bad(n, fmt.Sprintf("%s: %s is below 0", what, clip(s)), "")
		case v != 0 && v < least:
			d.bad(n, fmt.Sprintf("%s: %s is below %s", what, clip(s), least), fix)
		default:
			*to = v
		}
	}
}

// durationFix guesses at the unit that was left out, or set apart.
func durationFix(s string) string {
	joined := strings.ReplaceAll(s, " ", "")
	for _, guess := range []string{joined, strings.TrimSuffix(joined, "ec"), joined + "ms"} {
		if _, err := time.ParseDuration(guess); err == nil && guess != s {
			return fmt.Sprintf("did you mean %q? units are ns, us, ms, s, m, h", guess)
		}
	}
	return "write a number and a unit, as 10ms; units are ns, us, ms, s, m, h"
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Style == 0
}

func kindOf(n *yaml.Node) string {
	switch {
	case isNull(n):
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	return "a single value"
}

// clip keeps a message readable when a value is not.
func clip(s string) string {
	const most = 60
	n := 0
	for i := range s {
		if n == most {
			return s[:i] + "…"
		}
		n++
	}
	return s
}
