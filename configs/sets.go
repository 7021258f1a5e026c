package configs

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/setfile"
)

// mostSetBytes limits the file of a set. A million lines of ipset save with counters take 80 MiB.
const mostSetBytes = 256 << 20

// Note is something about a configuration that is no mistake, and that its author may not have meant.
type Note struct {
	Object     string // `set "blocklist"`
	Text       string
	Suggestion string
}

// sets decodes the named sets.
func (d *decoder) sets(n *yaml.Node, cfg *dataplane.Config) {
	files := &setFiles{d: d}
	left := dataplane.MostElementsOfAll
	d.fields(n, "sets", func(key, value *yaml.Node) {
		what := "sets." + clip(key.Value)
		var bad *flow.FieldError
		if err := flow.ValidateSetName(key.Value); errors.As(err, &bad) {
			d.bad(key, "sets: "+bad.Cause, bad.Fix)
		}
		if len(cfg.Sets) == dataplane.MostSets {
			d.bad(key, fmt.Sprintf("sets: more than %d", dataplane.MostSets), "join some")
			return
		}
		r := &setReader{d: d, files: files, name: key.Value, most: min(left, dataplane.MostElements)}
		d.mapping(value, what,
			entry{"type", word(d, &r.typ, what+".type", "address")},
			entry{"file", func(_, v *yaml.Node) { r.file(v, what+".file") }},
			entry{"elements", func(_, v *yaml.Node) { r.inline(v, what+".elements") }},
		)
		if len(r.elements) > r.most {
			d.bad(key, fmt.Sprintf("%s has more than %d elements", what, r.most), setFix(r.most))
		}
		// Keep a wrong set: otherwise each flow that names it is reported, too.
		left = max(0, left-len(r.elements)) // what was read takes memory and time, also what others contain
		cfg.Sets = append(cfg.Sets, dataplane.Set{Name: key.Value, Elements: r.merged()})
	})
}

// setFix is the next step for a set with too many elements.
func setFix(most int) string {
	if most < dataplane.MostElements {
		return fmt.Sprintf("the sets of a configuration have %d at most; join neighbours into prefixes", dataplane.MostElementsOfAll)
	}
	return "join neighbours into prefixes, or make two sets of it"
}

// setReader reads one set.
type setReader struct {
	d        *decoder
	files    *setFiles
	name     string
	typ      string
	most     int
	elements []netip.Prefix
}

func (r *setReader) note(text, suggestion string) {
	r.d.notes = append(r.d.notes, Note{Object: fmt.Sprintf("set %q", r.name), Text: text, Suggestion: suggestion})
}

// inline decodes the elements in the configuration itself.
func (r *setReader) inline(n *yaml.Node, what string) {
	r.d.sequence(n, what, func(i int, n *yaml.Node) {
		text, ok := r.d.scalar(n, fmt.Sprintf("%s[%d]", what, i))
		if !ok || len(r.elements) > r.most {
			return
		}
		var bad *setfile.ElementError
		if r.elements, bad = setfile.ParseElement(r.elements, text); bad != nil {
			r.d.bad(n, fmt.Sprintf("%s[%d]: %s", what, i, bad.Cause), bad.Fix)
		}
	})
}

// file reads the elements of a file.
func (r *setReader) file(n *yaml.Node, what string) {
	path, ok := r.d.scalar(n, what)
	switch {
	case !ok:
		return
	case path == "":
		r.d.bad(n, what+": the path is empty", "name a file with an element a line")
		return
	case r.d.opened == nil:
		r.d.bad(n, what+": this configuration is not read from a file, and has no directory to look in", "write the elements out")
		return
	}

	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.d.file), path)
	}
	found, err := r.files.read(path, r.most)
	if err != nil {
		r.d.bad(n, fmt.Sprintf("%s: %v", what, err), setFileFix(err))
		return
	}
	r.elements = append(r.elements, found.Elements...)
	if n := found.Timed; n > 0 {
		r.note(fmt.Sprintf("elements with a timeout in %s: %d; no timeout is kept", path, n), "they stay until the file is without them")
	}
}

// merged returns the elements in order, without those that others contain.
func (r *setReader) merged() []netip.Prefix {
	all := len(r.elements)
	merged, contained, shown := setfile.Merge(r.elements)
	if contained == 0 {
		return merged
	}
	merged = slices.Clone(merged) // the list may be much longer
	var b strings.Builder
	for i, s := range shown {
		if i > 0 {
			b.WriteString(", ")
		}
		if s.Element == s.In {
			fmt.Fprintf(&b, "%s twice", setfile.Text(s.Element))
		} else {
			fmt.Fprintf(&b, "%s in %s", setfile.Text(s.Element), setfile.Text(s.In))
		}
	}
	if more := contained - len(shown); more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	r.note(fmt.Sprintf("left out %d of %d elements, which others contain: %s", contained, all, b.String()), "remove them from the list")
	return merged
}

// setFiles opens the files of sets as included files are opened.
type setFiles struct {
	d    *decoder
	open *opener
}

var (
	errSetTooLong = fmt.Errorf("the file has more than %d MiB", mostSetBytes>>20)
	errNoSetFile  = errors.New("it is no regular file")
)

// setFileFix returns the next step for an error of setFiles.read.
func setFileFix(err error) string {
	switch {
	case errors.Is(err, errUntrusted):
		return "name a file that the owner of this one can read, and that no third user can write, nor a directory above it"
	case errors.Is(err, os.ErrNotExist):
		return "check the path; it is relative to the directory of this file"
	case errors.Is(err, errIrregular), errors.Is(err, errNoSetFile), errors.Is(err, errOfKernel):
		return "name a regular file with an element a line"
	}
	return ""
}

// read reads the file of a set. It reports the mistakes in it at their places.
func (s *setFiles) read(path string, most int) (*setfile.File, error) {
	if s.open == nil {
		var err error
		if s.open, err = newOpener(s.d.opened); err != nil {
			return nil, err
		}
	}
	f, err := s.open.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s.d.paths = append(s.d.paths, path)
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errNoSetFile
	case info.Size() > mostSetBytes:
		return nil, errSetTooLong
	}

	bounded := &io.LimitedReader{R: f, N: mostSetBytes + 1} // the file may grow meanwhile
	found, err := setfile.Read(bounded, most)
	switch {
	case err != nil:
		return nil, err
	case bounded.N == 0:
		return nil, errSetTooLong
	}
	s.mistakes(path, found)
	return found, nil
}

// mistakes reports the mistakes in a file. The path may lead to any file of the host, such as a private key. So a file is quoted only
// if it has an element, or begins with a tool's keyword.
func (s *setFiles) mistakes(path string, found *setfile.File) {
	if len(found.Mistakes) == 0 {
		return
	}
	part := &decoder{file: path, src: newSource("")}
	s.d.included = append(s.d.included, &fragment{decoder: part})
	if len(found.Elements) == 0 && !found.Known {
		m := found.Mistakes[0]
		part.badAt(m.Line, m.Col, m.Width, "this is no file of a set, so no line of it is shown: it has no element", setFileForms)
		return
	}
	for _, m := range found.Mistakes {
		part.badAt(m.Line, m.Col, m.Width, m.Msg, m.Fix)
	}
}

const setFileForms = `a line of it has an address, a prefix or first-last; or it is the output of nft list set or of ipset save`

// setsToYAML returns a mapping of the sets in their order, which no map of Go keeps.
func setsToYAML(sets []dataplane.Set) *yaml.Node {
	if len(sets) == 0 {
		return nil
	}
	text := func(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }
	all := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range sets {
		elements := &yaml.Node{Kind: yaml.SequenceNode}
		for _, p := range s.Elements {
			elements.Content = append(elements.Content, text(setfile.Text(p)))
		}
		all.Content = append(all.Content, text(s.Name), &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text("elements"), elements}})
	}
	return all
}
