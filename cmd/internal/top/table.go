package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/view"
)

// table selects and orders rows, and has the window on the screen.
type table struct {
	by      Column
	reverse bool
	filter  string // in lower case

	shown   []*row // the rows that pass the filter, in order of name
	changes int    // source.changes when shown was made; -1 to make it again
	sorted  bool   // order is completely sorted
	order   []item // shown in the chosen order, of which only the window may be sorted
	window  []*row // the rows on the screen, from offset on

	cursor, offset, height int // in rows
}

// item is a row with what decides its place in the order.
type item struct {
	key   float64 // greater keys come first
	has   bool    // rows without a key come last
	text  string  // decides between equal keys
	place int     // decides last: it is unique
	row   *row
}

func (a item) compare(b item) int {
	if a.has != b.has {
		if a.has {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(b.key, a.key); c != 0 { // cmp.Or would compare the rest, too
		return c
	}
	return cmp.Or(strings.Compare(a.text, b.text), cmp.Compare(a.place, b.place))
}

// sortBy changes the order. The cursor stays where it is on the screen.
func (t *table) sortBy(c Column, reverse bool) {
	t.by = c
	t.reverse = reverse
	t.changes = -1
}

// descends reports whether the greatest value comes first.
func (t *table) descends() bool { return describe[t.by].ascending == t.reverse }

// arrange updates the window. It reads the values needed for the order and the window. Calling it again in the same look
// is cheap, because the source reads each value only once per look.
func (t *table) arrange(s *source) {
	from, to := t.bounds(s)
	s.read(t.needed(from, to))
	if !describe[t.by].byEntry {
		t.rank(&s.reading, s.history.end(s.reading.Now))
		sortWindow(t.order, from, to)
	}
	t.window = t.rows(from, to)
}

// sample reads the same values as arrange, but does not sort again unless rows were added or removed.
func (t *table) sample(s *source) {
	if t.changes != s.changes {
		t.arrange(s)
		return
	}
	from, to := t.bounds(s)
	s.sample(t.needed(from, to))
	t.window = t.rows(from, to)
}

// bounds updates shown, and the order if that depends on entries alone. It returns the range of the order on the screen.
func (t *table) bounds(s *source) (from, to int) {
	if t.changes != s.changes {
		t.choose(s.listed())
		t.changes = s.changes
	}
	t.clamp()

	if describe[t.by].byEntry && !t.sorted {
		t.rank(&s.reading, 0)
		slices.SortFunc(t.order, item.compare)
		if t.descends() {
			slices.Reverse(t.order)
		}
		t.sorted = true
	}
	return t.offset, min(t.offset+t.height, len(t.shown))
}

// needed returns the rows whose values are needed. An order by values needs all rows. Otherwise these are the rows
// from..to on the screen, and a page above and below, so that rows already have a rate when they scroll into view.
func (t *table) needed(from, to int) []*row {
	if !describe[t.by].byEntry {
		return t.shown
	}
	return t.rows(max(0, from-t.height), min(to+t.height, len(t.order)))
}

// rows returns the rows from..to of the order. It overwrites window.
func (t *table) rows(from, to int) []*row {
	t.window = t.window[:0]
	for _, it := range t.order[from:to] {
		t.window = append(t.window, it.row)
	}
	return t.window
}

// choose fills shown with the rows that pass the filter.
func (t *table) choose(rows []*row) {
	clear(t.shown)
	t.shown = t.shown[:0]
	for _, r := range rows {
		if t.filter == "" || strings.Contains(r.text, t.filter) {
			t.shown = append(t.shown, r)
		}
	}
	t.sorted = false
}

// rank fills order with the keys of the rows.
func (t *table) rank(reading *view.Reading, end int64) {
	clear(t.order)
	t.order = t.order[:0]
	descends := t.descends()
	for i, r := range t.shown {
		it := item{place: i, row: r, has: true}
		switch {
		case t.by == Source:
			it.text = r.Counter.Source
		case t.by != Name:
			it.key, it.has = t.by.key(r, reading, end)
			if !descends {
				it.key = -it.key
			}
		}
		t.order = append(t.order, it)
	}
}

// move moves the cursor by n rows.
func (t *table) move(n int) {
	t.cursor += n
	t.clamp()
}

// clamp keeps the cursor on a row, and the window around the cursor.
func (t *table) clamp() {
	t.cursor = max(0, min(t.cursor, len(t.shown)-1))
	t.offset = max(0, min(t.offset, len(t.shown)-t.height))
	if t.cursor < t.offset {
		t.offset = t.cursor
	}
	if t.height > 0 && t.cursor >= t.offset+t.height {
		t.offset = t.cursor - t.height + 1
	}
}

// current returns the row under the cursor, or nil.
func (t *table) current() *row {
	if i := t.cursor - t.offset; i >= 0 && i < len(t.window) {
		return t.window[i]
	}
	return nil
}

// short is the length up to which sortWindow sorts everything.
const short = 48

// sortWindow moves the items to from..to that would be there if all were sorted, and in that order. It moves the others
// only to the correct side of the window. So it takes time proportional to n for n items, rather than to n log n.
func sortWindow(s []item, from, to int) {
	for range 64 { // after too many bad pivots, sort everything that remains
		if len(s) <= short || from >= to {
			break
		}
		p := split(s)
		switch {
		case to <= p:
			s = s[:p]
		case from > p:
			s = s[p+1:]
			from -= p + 1
			to -= p + 1
		default: // the window spans the pivot
			sortWindow(s[:p], from, min(to, p))
			s = s[p+1:]
			from = max(0, from-p-1)
			to -= p + 1
		}
	}
	if from < to {
		slices.SortFunc(s, item.compare)
	}
}

// split chooses a pivot, the median of three items, and moves smaller items before it. It returns the pivot's index.
func split(s []item) int {
	last := len(s) - 1
	mid := last / 2
	if s[mid].compare(s[0]) < 0 {
		s[mid], s[0] = s[0], s[mid]
	}
	if s[last].compare(s[0]) < 0 {
		s[last], s[0] = s[0], s[last]
	}
	if s[mid].compare(s[last]) < 0 {
		s[mid], s[last] = s[last], s[mid]
	}
	pivot, p := s[last], 0
	for i := range s[:last] {
		if s[i].compare(pivot) < 0 {
			s[i], s[p] = s[p], s[i]
			p++
		}
	}
	s[p], s[last] = s[last], s[p]
	return p
}
