package configs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Load reads a configuration file and the files it includes. A mistake in them is an *[Error]. The returned configuration
// is valid.
func Load(path string) (dataplane.Config, error) {
	cfg, _, err := LoadFiles(path)
	return cfg, err
}

// LoadFiles is like [Load], and also returns the paths of all files and directories it has read, even on error, so that
// the caller can watch them for changes.
func LoadFiles(path string) (cfg dataplane.Config, paths []string, err error) {
	l, err := LoadNoted(path)
	return l.Config, l.Paths, err
}

// Loaded is what [LoadNoted] has read.
type Loaded struct {
	Config dataplane.Config
	Paths  []string // as of LoadFiles
	Notes  []Note
}

// LoadNoted is like [LoadFiles], and also returns notes about the configuration.
func LoadNoted(path string) (Loaded, error) {
	// Keep the descriptor open for include, which must check the owner of the same file that was read.
	f, err := os.Open(path)
	if err != nil {
		return Loaded{}, fmt.Errorf("reading configuration: %w", err)
	}
	defer f.Close()
	data, err := readAll(f, mostBytes)
	if err != nil {
		return Loaded{}, fmt.Errorf("reading configuration: %w", err)
	}
	d := newDecoder(path, data, mainFields)
	d.opened = f
	cfg, err := d.parse()
	return Loaded{Config: cfg, Paths: append([]string{path}, d.paths...), Notes: d.notes}, err
}

// readAll reads a file, and fails if it is longer than most bytes.
func readAll(f *os.File, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s: more than %d bytes", f.Name(), most)
	}
	return data, err
}

// Parse decodes a configuration without includes. name is the name of the file for messages. A mistake is an *[Error]. The
// returned configuration is valid.
func Parse(name string, data []byte) (dataplane.Config, error) {
	return newDecoder(name, data, mainFields).parse()
}

func (d *decoder) parse() (dataplane.Config, error) {
	var cfg dataplane.Config
	if root := d.tree(); root != nil && d.plain(root) {
		d.config(root, &cfg)
	}
	if d.err() == nil {
		// Report what the decoder has missed, without a line. Flows were already validated one by one, and there may be
		// 100,000 of them.
		settings := cfg
		settings.Flows = nil
		if err := settings.Validate(); err != nil {
			d.problems = append(d.problems, Problem{File: d.file, Msg: err.Error()})
			d.count++
		}
	}
	if err := d.err(); err != nil {
		return dataplane.Config{}, err
	}
	return cfg, nil
}

// ParseFlows decodes a list of flows, with or without the key "flows:" of a configuration. A mistake is an *[Error].
func ParseFlows(name string, data []byte) ([]flow.Flow, error) {
	d := newDecoder(name, data, append([]string{"flows"}, flowFields...))
	d.anySet = true // those of the instance that the flows are for
	var cfg dataplane.Config
	first := make(map[string]place)
	root := d.tree()
	switch {
	case root == nil || !d.plain(root):
	case root.Kind == yaml.SequenceNode:
		d.flows(root, &cfg, false, first)
	default:
		d.mapping(root, "the list of flows", entry{"flows", func(_, v *yaml.Node) { d.flows(v, &cfg, false, first) }})
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return cfg.Flows, nil
}

func newDecoder(name string, data []byte, own []string) *decoder {
	return &decoder{file: name, own: own, allowed: newAllowance(), src: newSource(strings.TrimPrefix(string(data), "\ufeff"))}
}

// err returns the mistakes of all files as an *Error, or nil if there are none.
func (d *decoder) err() error {
	count := d.count
	problems := d.sorted()
	for _, f := range d.included {
		count += f.count
		problems = append(problems, f.sorted()...)
	}
	if count == 0 {
		return nil
	}
	problems = problems[:min(len(problems), mostProblems)]
	return &Error{File: d.file, Problems: problems, More: count - len(problems)}
}

// sorted returns the mistakes of one file in the order of its lines.
func (d *decoder) sorted() []Problem {
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, a.Col-b.Col)
	})
	return d.problems
}

// tree parses the YAML. After a mistake it returns nil.
func (d *decoder) tree() *yaml.Node {
	if at := firstUnreadable(d.src.text); at >= 0 {
		line, col := d.src.place(at)
		d.hidden = !ours(d.src.text, d.own)
		d.badAt(line, col, 1, "a byte that is no text (UTF-8) stands here", "save the file as plain UTF-8 text")
		return nil
	}
	if blank(d.src.text) {
		return &yaml.Node{Kind: yaml.MappingNode, Line: 1, Column: 1}
	}

	err := d.allowed.take(d.src.text)
	if err != nil {
		d.hidden = !ours(d.src.text, d.own)
		d.badAt(1, 1, 1, err.Error(), "leave out empty and needless values")
		return nil
	}

	var doc yaml.Node
	err = yaml.Load([]byte(d.src.text), &doc)
	if err == nil && len(doc.Content) == 1 {
		root := doc.Content[0]
		if !oursIn(root, d.own) {
			d.foreign(root.Line, root.Column)
			return nil
		}
		return root
	}
	if !ours(d.src.text, d.own) {
		d.foreign(1, 1)
		return nil
	}
	d.badYAML(err)
	return nil
}

// badYAML reports an error of the YAML parser.
func (d *decoder) badYAML(err error) {
	var bad *yaml.LoadError
	if !errors.As(err, &bad) {
		d.badAt(1, 1, 1, fmt.Sprintf("reading YAML: %v", err), "")
		return
	}

	msg := strings.TrimPrefix(bad.Message, "yaml: ")
	if bad.ContextMsg != "" {
		msg = bad.ContextMsg + ": " + msg
	}
	line := bad.Mark.Line
	suggestion := ""
	switch {
	case strings.Contains(msg, "cannot start any token") && strings.Contains(d.src.line(line), "@"):
		suggestion = `quote a value that begins with @, as "@blocklist"`
	case strings.Contains(d.src.line(line), "\t"):
		suggestion = "indent with spaces: YAML takes no tabs there"
	case strings.Contains(msg, "found multiple"):
		msg = "a configuration is one document"
		suggestion = `leave out everything behind the line "---"`
		line = 2
		for line < len(d.src.start) && !strings.HasPrefix(d.src.line(line), "---") {
			line++
		}
	case strings.Contains(msg, "mapping values are not allowed"):
		suggestion = `indent the line as its neighbors are, and quote a value that holds ": "`
	}
	d.badAt(max(1, line), max(1, bad.Mark.Column), 1, "reading YAML: "+msg, suggestion)
}

// plain reports YAML features other than mappings, lists and scalars.
func (d *decoder) plain(n *yaml.Node) bool {
	before := d.count
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		switch {
		case n.Kind == yaml.AliasNode:
			d.bad(n, "aliases are not read here", "write the value out")
			return // do not follow it: the anchored node may contain this alias
		case n.Anchor != "":
			d.bad(n, "anchors are not read here", "leave it out, and write the value out where it is used")
		case n.Style&yaml.TaggedStyle != 0:
			suggestion := "leave it out; quote a value that is to be text"
			if strings.HasPrefix(n.Tag, "!=") { // without it, the match would ask for the opposite
				suggestion = `a value that begins with ! is a tag in YAML: quote it, as "!= 80"`
			}
			d.bad(n, fmt.Sprintf("the tag %s is not read here", clip(n.Tag)), suggestion)
		case n.Tag == "!!merge":
			d.bad(n, "merge keys are not read here", "write the fields out")
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	walk(n)
	return d.count == before
}

// firstUnreadable returns the offset of the first invalid UTF-8 or control character, or -1.
func firstUnreadable(s string) int {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return i
			}
		}
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f {
			return i
		}
	}
	return -1
}

// blank reports whether a text has only comments and white space.
func blank(s string) bool {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return false
		}
	}
	return true
}
