package cli

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// selection is the counters that a command line names: by name, or by a pattern as of
// the shell (path.Match), but that * and ? match a slash too: it is no more in a name
// than a dot is.
type selection struct {
	met map[string]bool // by name or pattern: whether a counter was found
}

// newSelection refuses an invalid pattern.
func newSelection(names []string) (selection, error) {
	s := selection{met: make(map[string]bool, len(names))}
	for _, name := range names {
		if _, err := path.Match(name, ""); err != nil {
			return selection{}, usagef("%q is no pattern: %w; it has *, ? and [a-z], as of the shell", name, err)
		}
		s.met[name] = false
	}
	return s, nil
}

func isPattern(name string) bool { return strings.ContainsAny(name, `*?[\`) }

// has reports whether a counter is selected, and marks the name that selected it. Without names
// every counter is.
func (s selection) has(counter string) bool {
	if len(s.met) == 0 {
		return true
	}
	found := false
	for name := range s.met {
		if name == counter || isPattern(name) && matches(name, counter) {
			s.met[name], found = true, true
		}
	}
	return found
}

// matches is path.Match without the meaning that a slash has in paths.
func matches(pattern, name string) bool {
	flat := func(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
	ok, err := path.Match(flat(pattern), flat(name))
	return ok && err == nil
}

// unmet returns the names without a counter, sorted.
func (s selection) unmet() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.met)), func(name string) bool { return s.met[name] })
}
