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

// decoder decodes a tree of YAML nodes and collects all mistakes.
type decoder struct {
	file     string
	src      *source
	own      []string            // the fields that prove that the file is a configuration
	allowed  *allowance          // shared with included files
	hidden   bool                // the file is no configuration, so errors must not quote it
	problems []Problem           // the first mostProblems
	count    int                 // of all problems
	in       element             // being decoded
	wrong    map[*yaml.Node]bool // keys and values with a mistake
	opened   *os.File            // the file; nil for text, which cannot include files
	included []*fragment
	paths    []string // of included files and directories, and of the files of sets
	notes    []Note
	anySet   bool // flows may name sets that the text does not define
}

// These limit the work on a file that is wrong everywhere.
const (
	mostProblems = 1000    // to keep
	mostCounted  = 1 << 15 // to count; after that, lists and mappings are cut short
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

// element is an element of a list. Messages about it begin with its String, followed by the rest of the path.
type element struct {
	list  string // empty outside of lists
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
	// The marker must end with its line.
	p.Width = max(1, min(p.Width, length-p.Col+1))
	d.problems = append(d.problems, p)
}

// entry is one known field of a mapping.
type entry struct {
	name string
	read func(key, value *yaml.Node)
}

// mapping decodes a mapping with known fields. It takes an empty value for an empty mapping, and skips empty fields.
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
	if d.count >= mostProblems { // only count it, without the cost of a suggestion
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

// fields calls read for each field of a mapping. It reports repeated keys and skips them.
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

// keys finds repeated keys of a mapping.
type keys struct {
	content []*yaml.Node          // keys and values in turn
	byName  map[string]*yaml.Node // nil for a small mapping, where a linear search is faster
}

func newKeys(n *yaml.Node) keys {
	const few = 16
	if len(n.Content) <= 2*few {
		return keys{content: n.Content}
	}
	return keys{n.Content, make(map[string]*yaml.Node)}
}

// add returns the earlier key with the name of content[i], or nil if there is none.
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

// sequence calls read for each element of a list. An empty value is an empty list.
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

// scalar returns a value as written. It ignores how YAML would interpret it, for example "no" as false.
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

// word decodes a value that must be one of the given words.
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

// durationFix proposes a correction for a duration with a missing or separate unit.
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

// clip shortens a long value for a message.
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
