package top

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// fact is a part of the status line.
type fact struct {
	text string
	rank int // on a narrow terminal, facts of a high rank disappear first
}

// facts returns the parts of the status line from left to right. trouble says that the values are not current.
func (m *model) facts() (facts []fact, trouble bool) {
	add := func(rank int, text string) { facts = append(facts, fact{text, rank}) }
	if m.editing {
		add(0, "filter: "+format.PrintableLines(m.input.Value()))
	}
	if m.source == nil {
		state := "opening the mirror"
		if m.waiting != nil {
			state = "waiting for the mirror"
		}
		add(1, state)
		add(3, format.Printable(filepath.Base(m.o.Path)))
		add(8, m.shortHelp())
		return facts, true
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

	add(3, m.countOfRows())
	if m.page == onTable {
		if m.columns.hidden > 0 {
			add(5, "→ more columns")
		}
		add(8, "by "+strings.ToLower(describe[m.table.by].heading))
	}
	add(4, format.Printable(filepath.Base(m.source.reading.Path)))
	add(7, m.shortHelp())
	return facts, trouble
}

// countOfRows returns a text such as "12 of 40 counters" or "3 sums".
func (m *model) countOfRows() string {
	all := m.source.listed()
	text := format.Plural(uint64(len(all)), "counter", "counters")
	if m.source.sum != nil {
		text = format.Plural(uint64(len(all)), "sum", "sums")
	}
	if len(m.table.shown) != len(all) {
		text = format.Count(uint64(len(m.table.shown))) + " of " + text
	}
	return text
}

// reason returns the last part of an error's text, because the paths before it may be long.
func reason(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return format.Printable(text)
}

// shortHelp names the keys for help and for quitting.
func (m *model) shortHelp() string {
	var texts []string
	for _, k := range m.keys.ShortHelp() {
		texts = append(texts, k.Help().Key+" "+k.Help().Desc)
	}
	return strings.Join(texts, "  ")
}

// statusLine appends the last line of the screen. If the facts do not fit, it leaves out those of the highest rank.
func (m *model) statusLine(b []byte) []byte {
	facts, trouble := m.facts()
	for len(facts) > 1 && m.method.StringWidth(join(facts)) > m.width {
		least := 0
		for i, f := range facts {
			if f.rank >= facts[least].rank {
				least = i
			}
		}
		facts = slices.Delete(facts, least, least+1)
	}

	style := m.ink.status
	if trouble {
		style = m.ink.trouble
	}
	b = append(b, style.on...)
	b = appendCell(b, m.method, join(facts), m.width, false)
	return append(b, style.off...)
}

// join returns the text of the status line.
func join(facts []fact) string {
	text := ""
	for i, f := range facts {
		if i > 0 {
			text += "  "
		} else {
			text += " "
		}
		text += f.text
	}
	return text
}

// filterCursor returns the column of the cursor in the text of the filter.
func (m *model) filterCursor() (x int, ok bool) {
	before := string([]rune(m.input.Value())[:m.input.Position()])
	x = len(" filter: ") + m.method.StringWidth(before)
	return x, x < m.width
}
