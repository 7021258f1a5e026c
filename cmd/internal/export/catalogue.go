package export

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/shm"
)

// row is one exported counter, or the sum of a group.
type row struct {
	entry  shm.Entry
	labels []label // of its series, in order of name

	// The last reading.
	value  shm.Value
	device bool // value comes from the memory to which a device writes
	unread bool // a device counts, but its memory is not readable: value is the published one
	gone   bool // the counter was removed after the catalogue was read

	// Of a sum only.
	unlike   bool // its counters count bytes on different bases, so the bytes do not add up
	tooLarge bool // value has wrapped
}

// label is one label of a series.
type label struct{ name, value string }

// catalogue lists the exported counters of a mirror. Decoding the mirror's catalogue is expensive, so the list is kept
// until the mirror reports a change.
type catalogue struct {
	pick func(shm.Entry) bool // nil: every counter
	keys []string             // of the flow labels to export
	most int                  // rows

	file    *shm.Reader // the file that rows come from
	changes uint64      // its count of changes when rows were made
	epoch   uint64      // incremented with each new list of rows
	rows    []row       // in order of name
	dropped int         // how many selected counters have no row, because of most or of a name that exists
}

// renew makes new rows if the mirror's catalogue has changed.
func (c *catalogue) renew(r *shm.Reader, s shm.Status) error {
	if c.file == r && c.changes == s.CatalogueChanges {
		return nil
	}
	entries, err := r.Entries()
	if err != nil {
		return fmt.Errorf("%s: reading the catalogue: %w", r.Path(), err)
	}
	if c.pick != nil {
		entries = slices.DeleteFunc(entries, func(e shm.Entry) bool { return !c.pick(e) })
	}

	c.dropped = max(0, len(entries)-c.most)
	if c.dropped > 0 { // keep the oldest, so that a new counter never ends a series
		slices.SortFunc(entries, func(a, b shm.Entry) int {
			return cmp.Or(cmp.Compare(a.AddedAt, b.AddedAt), cmp.Compare(a.Handle.Index, b.Handle.Index))
		})
		entries = entries[:c.most]
	}

	slices.SortFunc(entries, func(a, b shm.Entry) int { return cmp.Compare(a.Name, b.Name) })
	c.rows = make([]row, 0, len(entries))
	for i, e := range entries {
		if i > 0 && e.Name == entries[i-1].Name { // Prometheus refuses a scrape with one series twice
			c.dropped++
			continue
		}
		c.rows = append(c.rows, row{entry: e, labels: labelsOf(e, c.keys)})
	}

	// The caller read the status before these entries, so the next renew notices a change made in between.
	c.file = r
	c.changes = s.CatalogueChanges
	c.epoch++
	return nil
}

// Labels of every series of a counter. ValidateLabelKeys reserves these names.
const (
	counterLabel   = "counter"
	directionLabel = "direction"
	unitLabel      = "unit" // of sums in a unit of their own
)

// labelsOf returns the labels of a counter's series. Prometheus treats an empty label as a missing one, so a key without
// a value adds no label.
func labelsOf(e shm.Entry, keys []string) []label {
	labels := []label{{counterLabel, text(e.Name)}}
	if d, ok := selection.DirectionOf(e); ok {
		labels = append(labels, label{directionLabel, d.String()})
	}
	for _, k := range keys {
		if v := e.Labels[k]; v != "" {
			labels = append(labels, label{labelName(k), text(v)})
		}
	}
	slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.name, b.name) })
	return labels
}

// labelName turns the key of a flow label into a valid name of a Prometheus label. Two keys may get the same name:
// ValidateLabelKeys refuses these.
func labelName(key string) string {
	name := strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, key)
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	return name
}

// ValidateLabelKeys returns an error if a key of a flow label cannot become the name of a Prometheus label, or if two
// keys would become one name.
func ValidateLabelKeys(keys []string) error {
	keyByName := map[string]string{ // "": reserved
		counterLabel: "", directionLabel: "", unitLabel: "", "instance": "", "job": "", "kind": "", "reason": "",
	}
	for _, k := range keys {
		name := labelName(k)
		other, taken := keyByName[name]
		switch {
		case k == "":
			return fmt.Errorf("label key %q: it is empty", k)
		case strings.HasPrefix(name, "__"):
			return fmt.Errorf("label key %q: Prometheus reserves names that begin with __", k)
		case taken && other == "":
			return fmt.Errorf("label key %q: series have a label %s already", k, name)
		case taken:
			return fmt.Errorf("label keys %q and %q: both become the label %s", other, k, name)
		}
		keyByName[name] = k
	}
	return nil
}

// text returns s as valid UTF-8, which Prometheus and OTLP require. It writes each invalid byte as \xNN.
func text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}
