package top

import (
	"path/filepath"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// fact is a part of the status line.
type fact struct {
	text string
	rank int // the fact of the highest rank is left out first
}

// facts are the parts of the status line, from left to right; trouble is set if the values are not current.
func (m *model) facts() (facts []fact, trouble bool) {
	add := func(rank int, text string) { facts = append(facts, fact{text, rank}) }
	if m.editing {
		add(0, "filter: "+format.PrintableLines(m.input.Value()))
	}
	if m.source == nil {
		if m.waiting != nil {
			add(1, "waiting for the mirror")
		} else {
			add(1, "opening the mirror")
		}
		add(3, format.Printable(filepath.Base(m.o.Path)))
		return append(facts, fact{m.shortHelp(), 8}), true
	}
	writer := m.source.reading.Writer
	switch {
	case m.source.err != nil:
		trouble = true
		add(1, "cannot be read: "+reason(m.source.err))
	case !writer.Live():
		trouble = true
		add(1, "WRITER "+writer.String())
	default:
		add(6, "writer "+writer.State)
	}
	if m.paused {
		add(1, "PAUSED")
	}
	if m.table.filter != "" && !m.editing {
		add(2, "filter: "+format.PrintableLines(m.input.Value()))
	}
	all := m.source.listed()
	counters := format.Plural(uint64(len(all)), "counter", "counters")
	if m.source.sum != nil {
		counters = format.Plural(uint64(len(all)), "sum", "sums")
	}
	if len(m.table.shown) != len(all) {
		counters = format.Count(uint64(len(m.table.shown))) + " of " + counters
	}
	add(3, counters)
	if m.page == onTable {
		if m.columns.hidden > 0 {
			add(5, "→ more columns")
		}
		add(8, "by "+strings.ToLower(describe[m.table.by].heading))
	}
	add(4, format.Printable(filepath.Base(m.source.reading.Path)))
	return append(facts, fact{m.shortHelp(), 7}), trouble
}

// reason is the innermost text of an error, without the path, which may be long.
func reason(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return format.Printable(text)
}

func (m *model) shortHelp() string {
	var texts []string
	for _, k := range m.keys.ShortHelp() {
		texts = append(texts, k.Help().Key+" "+k.Help().Desc)
	}
	return strings.Join(texts, "  ")
}

// statusLine appends the last line of the screen.
func (m *model) statusLine(b []byte) []byte {
	facts, trouble := m.facts()
	text := func() string {
		s := " "
		for i, f := range facts {
			if i > 0 {
				s += "  "
			}
			s += f.text
		}
		return s
	}
	for len(facts) > 1 && m.method.StringWidth(text()) > m.width {
		worst := 0
		for i, f := range facts {
			if f.rank >= facts[worst].rank {
				worst = i
			}
		}
		facts = append(facts[:worst], facts[worst+1:]...)
	}
	style := m.ink.status
	if trouble {
		style = m.ink.trouble
	}
	b = append(b, style.on...)
	b = appendCell(b, m.method, text(), m.width, false)
	return append(b, style.off...)
}

// filterCursor returns the column of the cursor in the text of the filter.
func (m *model) filterCursor() (x int, ok bool) {
	before := string([]rune(m.input.Value())[:m.input.Position()])
	x = len(" filter: ") + m.method.StringWidth(before)
	return x, x < m.width
}
