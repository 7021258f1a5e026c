package selection

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/internal/spelling"
	"github.com/flowtally/flowtally/shm"
)

// UnmetError says which part of a selection no counter of a mirror meets.
type UnmetError struct{ text string }

func (e *UnmetError) Error() string { return e.text }
func (e *UnmetError) Unwrap() error { return shm.ErrNotFound }

// UnknownName returns the error for a name or pattern without a counter in the mirror at path. It suggests a similar name.
func UnknownName(path, name string, entries []shm.Entry) *UnmetError {
	line := fmt.Sprintf("%s: no counter %q", path, name)
	if IsPattern(name) {
		line = fmt.Sprintf("%s: no counter matches %q", path, name)
	}
	if near := spelling.Nearest(name, CounterNames(entries)); near != "" {
		line += fmt.Sprintf(", did you mean %q?", near)
	}
	return &UnmetError{line}
}

// Unmet returns an *UnmetError if a name of the selection has no counter in the mirror at path, or if no counter is
// selected at all. Callers must have called Has with all entries. The error has only the first kind of cause found,
// because the other ones may just follow from it.
func (s *Selection) Unmet(path string, entries []shm.Entry, selected int) error {
	lines := s.unmetNames(path, entries)
	if len(lines) == 0 {
		lines = s.unmetLabels(path, entries)
	}
	if len(lines) == 0 && len(entries) > 0 {
		lines = s.unmetKeys(path, entries)
	}
	if all := s.conditions(); len(lines) == 0 && selected == 0 && len(all) > 0 {
		lines = append(lines, fmt.Sprintf("%s: no counter meets all of: %s", path, strings.Join(all, ", ")))
	}
	if len(lines) == 0 {
		return nil
	}
	return &UnmetError{strings.Join(lines, "\nflowtally: ")}
}

func (s *Selection) unmetNames(path string, entries []shm.Entry) (lines []string) {
	for _, name := range s.UnmetNames() {
		lines = append(lines, UnknownName(path, name, entries).text)
	}
	return lines
}

func (s *Selection) unmetLabels(path string, entries []shm.Entry) (lines []string) {
	of := ""
	if len(s.names) > 0 { // the caller may have read only the named counters
		of = " of these names"
	}
	for _, label := range s.UnmetLabels() {
		lines = append(lines, fmt.Sprintf("%s: no counter%s has label %q%s", path, of, label, nearLabel(label, entries)))
	}
	return lines
}

// unmetKeys names the keys of --sum-by without a label.
func (s *Selection) unmetKeys(path string, entries []shm.Entry) (lines []string) {
	if len(s.sumBy) == 0 {
		return nil
	}
	keys := LabelKeys(entries)
	for _, key := range s.sumBy {
		if !slices.Contains(keys, key) {
			lines = append(lines, fmt.Sprintf("%s: --sum-by %s: no counter has a label of this key%s", path, key, nearKey(key, keys)))
		}
	}
	return lines
}

// conditions returns the flags that narrow the selection, as the user wrote them.
func (s *Selection) conditions() (out []string) {
	for _, r := range s.labels {
		out = append(out, "--label "+r.text)
	}
	if s.direction != nil {
		out = append(out, "--direction "+s.direction.String())
	}
	return out
}

// nearLabel suggests a similar label, or else lists the keys of all labels.
func nearLabel(label string, entries []shm.Entry) string {
	if near := spelling.Nearest(label, Labels(entries)); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return nearKey("", LabelKeys(entries))
}

// nearKey suggests a similar key, or else lists the first keys.
func nearKey(key string, keys []string) string {
	if near := spelling.Nearest(key, keys); key != "" && near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
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

// CounterNames returns the names of counters.
func CounterNames(entries []shm.Entry) []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name
	}
	return names
}

// LabelKeys returns the keys of all labels, sorted.
func LabelKeys(entries []shm.Entry) []string {
	keys := make(map[string]bool)
	for _, e := range entries {
		for k := range e.Labels {
			keys[k] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// Labels returns all labels as KEY=VALUE, sorted.
func Labels(entries []shm.Entry) []string {
	texts := make(map[string]bool)
	for _, e := range entries {
		for k, v := range e.Labels {
			texts[k+"="+v] = true
		}
	}
	return slices.Sorted(maps.Keys(texts))
}
