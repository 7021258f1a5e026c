package selection

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/internal/spelling"
	"github.com/flowtally/flowtally/shm"
)

// UnmetError is a selection that the counters of a mirror do not meet.
type UnmetError struct{ text string }

func (e *UnmetError) Error() string { return e.text }
func (e *UnmetError) Unwrap() error { return shm.ErrNotFound }

// UnknownName is the error for a name, or a pattern, that no counter of the mirror at path has.
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

// Unmet returns an *UnmetError if the mirror at path, whose entries were all shown to Has, has no counter for a name of
// the selection, or no selected counter at all. It tells the first kind of cause that there is: the others may follow
// from it.
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
	if len(s.names) > 0 { // entries can be the named counters alone
		of = " of these names"
	}
	for _, label := range s.UnmetLabels() {
		lines = append(lines, fmt.Sprintf("%s: no counter%s has label %q%s", path, of, label, nearLabel(label, entries)))
	}
	return lines
}

// unmetKeys tells the keys of --sum-by that no counter has.
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

// conditions returns the conditions of the options, as they were written.
func (s *Selection) conditions() (out []string) {
	for _, r := range s.labels {
		out = append(out, "--label "+r.text)
	}
	if s.direction != nil {
		out = append(out, "--direction "+s.direction.String())
	}
	return out
}

// nearLabel returns the label that was most likely meant, else the keys of all labels.
func nearLabel(label string, entries []shm.Entry) string {
	if near := spelling.Nearest(label, Labels(entries)); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return nearKey("", LabelKeys(entries))
}

// nearKey returns the key that was most likely meant, else the first of the keys.
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
