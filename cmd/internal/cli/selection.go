package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// newSelection is selection.New. A mistake in names or o is one of usage.
func newSelection(names []string, o selection.Options) (*selection.Selection, error) {
	s, err := selection.New(names, o)
	if err != nil {
		return nil, &usageError{err}
	}
	return s, nil
}

// unknownError is a selection that a mirror does not meet.
type unknownError struct{ text string }

func (e *unknownError) Error() string { return e.text }
func (e *unknownError) Unwrap() error { return shm.ErrNotFound }

// unknownName is the error for a name, or a pattern, that none of the names of a mirror is.
func unknownName(path, name string, names []string) *unknownError {
	line := fmt.Sprintf("%s: no counter %q", path, name)
	if selection.IsPattern(name) {
		line = fmt.Sprintf("%s: no counter matches %q", path, name)
	}
	if near := flow.Nearest(name, names); near != "" {
		line += fmt.Sprintf(", did you mean %q?", near)
	}
	return &unknownError{line}
}

// unmet returns an *unknownError if a mirror with those entries has no counter for a name of the selection, or no
// selected counter at all.
func unmet(path string, s *selection.Selection, entries []shm.Entry, selected int) error {
	names := counterNames(entries)
	var lines []string
	for _, name := range s.UnmetNames() {
		lines = append(lines, unknownName(path, name, names).text)
	}
	if len(lines) == 0 {
		for _, label := range s.UnmetLabels() {
			lines = append(lines, fmt.Sprintf("%s: no counter has label %q%s", path, label, nearLabel(label, entries)))
		}
	}
	if all := s.Conditions(); len(lines) == 0 && selected == 0 && len(all) > 0 {
		lines = append(lines, fmt.Sprintf("%s: no counter meets all of: %s", path, strings.Join(all, ", ")))
	}
	if len(lines) == 0 {
		return nil
	}
	return &unknownError{strings.Join(lines, "\nflowtally: ")}
}

// nearLabel returns the label that was most likely meant, else the keys that there are.
func nearLabel(label string, entries []shm.Entry) string {
	texts := labelTexts(entries)
	if near := flow.Nearest(label, texts); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	keys := labelKeys(entries)
	if len(keys) == 0 {
		return "; no counter has any label"
	}
	const most = 8
	more := ""
	if len(keys) > most {
		keys, more = keys[:most], ", …"
	}
	return fmt.Sprintf("; the keys are %q%s", keys, more)
}

// labelKeys returns the keys of all labels, sorted.
func labelKeys(entries []shm.Entry) []string {
	keys := make(map[string]bool)
	for _, e := range entries {
		for k := range e.Labels {
			keys[k] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// labelTexts returns all labels as KEY=VALUE, sorted.
func labelTexts(entries []shm.Entry) []string {
	texts := make(map[string]bool)
	for _, e := range entries {
		for k, v := range e.Labels {
			texts[k+"="+v] = true
		}
	}
	return slices.Sorted(maps.Keys(texts))
}
