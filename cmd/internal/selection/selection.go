// Package selection chooses counters of a mirror by name, labels and direction, and adds their values up.
package selection

import (
	"fmt"
	"path"
	"strings"
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// Options are the flags of a command that selects counters. The zero value selects every counter.
type Options struct {
	Label     []string `sep:"none" complete:"labels" help:"Only counters with this label: KEY=VALUE, where VALUE may be a pattern as of the shell, KEY!=VALUE, KEY=~REGEXP or KEY!~REGEXP (of the whole value), KEY (any value), or !KEY (no such label). May be repeated: all must hold." placeholder:"KEY=VALUE"`
	Direction string   `help:"Only flows of this side of the interface: ingress or egress." enum:",ingress,egress" default:"" placeholder:"SIDE"`
	SumBy     []string `sep:"," complete:"label-keys" help:"Add up the counters that have the same value of this label. May be repeated, or a list with commas." placeholder:"KEY"`
}

// Selection decides which counters a command shows. The zero value selects every counter. It may be used from any
// goroutine.
type Selection struct {
	names     []*name
	exact     map[string]*name
	labels    []*requirement
	direction *flow.Direction // nil: any
	sumBy     []string
}

// name is a name, or a pattern of names.
type name struct {
	text    string
	pattern string // for matches; "" if the name is not a pattern
	met     atomic.Bool
}

// New returns a selection of the named counters, narrowed by o. A name may be a pattern as in a shell (path.Match), except
// that * and ? match a slash too. Without names, o alone selects.
func New(names []string, o Options) (*Selection, error) {
	s := &Selection{exact: make(map[string]*name), sumBy: o.SumBy}
	for _, text := range names {
		if s.exact[text] != nil {
			continue
		}
		if err := checkPattern(text); err != nil {
			return nil, err
		}
		n := &name{text: text}
		if IsPattern(text) {
			n.pattern = flat(text)
		}
		s.names = append(s.names, n)
		s.exact[text] = n
	}

	for _, text := range o.Label {
		r, err := parseRequirement(text)
		if err != nil {
			return nil, err
		}
		s.labels = append(s.labels, r)
	}
	for _, key := range o.SumBy {
		if key == "" || strings.ContainsAny(key, "=!~") {
			return nil, fmt.Errorf("--sum-by %q is no key of a label; name the key alone, such as --sum-by team", key)
		}
	}
	if o.Direction != "" {
		s.direction = new(flow.Direction)
		if err := s.direction.UnmarshalText([]byte(o.Direction)); err != nil {
			return nil, fmt.Errorf("--direction: %w", err)
		}
	}
	return s, nil
}

// Has reports whether a counter is selected. Whether or not it is, Has remembers the names and labels that it meets, for
// UnmetNames and UnmetLabels.
func (s *Selection) Has(e shm.Entry) bool {
	selected := s.hasName(e.Name)
	for _, r := range s.labels {
		value, has := e.Labels[r.key]
		if !r.holds(value, has) {
			selected = false
		}
	}
	return selected && s.hasDirection(e)
}

func (s *Selection) hasName(counter string) bool {
	if len(s.names) == 0 {
		return true
	}
	found := false
	if n := s.exact[counter]; n != nil {
		n.met.Store(true)
		found = true
	}
	for _, n := range s.names {
		if n.pattern != "" && matches(n.pattern, counter) {
			n.met.Store(true)
			found = true
		}
	}
	return found
}

func (s *Selection) hasDirection(e shm.Entry) bool {
	if s.direction == nil {
		return true
	}
	d, ok := DirectionOf(e)
	return ok && d == *s.direction
}

// DirectionOf returns the direction of a flow's counter, and false for a counter of another kind.
func DirectionOf(e shm.Entry) (flow.Direction, bool) {
	if e.Kind != "flow" {
		return 0, false
	}
	d, _, ok := flow.ParseIdentity(e.Text)
	return d, ok
}

// Names returns the names, so that callers can look these counters up instead of trying all. It returns nil if there is
// no name, or if any is a pattern.
func (s *Selection) Names() []string {
	var out []string
	for _, n := range s.names {
		if n.pattern != "" {
			return nil
		}
		out = append(out, n.text)
	}
	return out
}

// UnmetNames returns the names and patterns without a counter so far, in the order of New.
func (s *Selection) UnmetNames() (out []string) {
	for _, n := range s.names {
		if !n.met.Load() {
			out = append(out, n.text)
		}
	}
	return out
}

// UnmetLabels returns the requirements on labels met by no counter so far, in the order of Options.Label.
func (s *Selection) UnmetLabels() (out []string) {
	for _, r := range s.labels {
		if !r.met.Load() {
			out = append(out, r.text)
		}
	}
	return out
}

// IsPattern reports whether New treats a name as a pattern.
func IsPattern(name string) bool { return strings.ContainsAny(name, `*?[\`) }

func checkPattern(text string) error {
	if _, err := path.Match(text, ""); err != nil {
		return fmt.Errorf("%q is no pattern: %w; it has *, ? and [a-z], as of the shell", text, err)
	}
	return nil
}

// flat replaces slashes by a byte that no name contains, because * and ? of path.Match do not match a slash.
func flat(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

// matches reports whether s matches a pattern, on which the caller has called flat.
func matches(pattern, s string) bool {
	ok, err := path.Match(pattern, flat(s))
	return ok && err == nil
}
