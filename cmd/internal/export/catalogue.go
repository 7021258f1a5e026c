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

	// As it was read last.
	value  shm.Value
	device bool // value was read where a device writes it
	unread bool // a device writes it to memory that cannot be read: value is the published value
	gone   bool // the counter was removed since

	unlike   bool // of a sum: the bytes of its counters have several bases, and do not add up
	tooLarge bool // of a sum: value has wrapped
}

// label is one label of a series.
type label struct{ name, value string }

// catalogue is the exported counters of a mirror. It is decoded again when the mirror's catalogue has changed.
type catalogue struct {
	pick func(shm.Entry) bool
	keys []string
	most int

	of      *shm.Reader
	changes uint64
	epoch   uint64 // moves whenever rows are made anew
	rows    []row  // in order of name
	dropped int    // the number of selected counters beyond most
}

// renew makes rows anew if the catalogue of the mirror has changed since they were made.
func (c *catalogue) renew(r *shm.Reader, s shm.Status) error {
	if c.of == r && c.changes == s.CatalogueChanges {
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
	if c.dropped > 0 { // those added last
		slices.SortFunc(entries, func(a, b shm.Entry) int {
			return cmp.Or(cmp.Compare(a.AddedAt, b.AddedAt), cmp.Compare(a.Handle.Index, b.Handle.Index))
		})
		entries = entries[:c.most]
	}

	slices.SortFunc(entries, func(a, b shm.Entry) int { return cmp.Compare(a.Name, b.Name) })
	c.rows = make([]row, 0, len(entries))
	for i, e := range entries {
		if i > 0 && e.Name == entries[i-1].Name { // a series of that name exists
			c.dropped++
			continue
		}
		c.rows = append(c.rows, row{entry: e, labels: labelsOf(e, c.keys)})
	}

	// The status was read before the entries: a change in between is seen at the next read.
	c.of = r
	c.changes = s.CatalogueChanges
	c.epoch++
	return nil
}

// Labels of every series of a counter. No key of a flow label may have such a name.
const (
	counterLabel   = "counter"
	directionLabel = "direction"
	unitLabel      = "unit" // of sums in a unit of their own
)

// labelsOf returns the labels of the series of a counter. A flow label that the counter does not have is left out.
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

// labelName returns the key of a flow label as the name of a Prometheus label.
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

// ValidateLabelKeys refuses keys of flow labels that cannot become labels of a series.
func ValidateLabelKeys(keys []string) error {
	keyByName := map[string]string{ // "": the name is taken
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

// text returns s as valid UTF-8, as Prometheus and OTLP demand: each other byte is shown as \xNN.
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
