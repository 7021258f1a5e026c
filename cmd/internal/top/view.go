package top

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// View draws the screen: the table or a page, and the status line in the last row.
func (m *model) View() tea.View {
	if m.stale {
		m.drawn = m.frame()
		m.stale = false
	}
	v := tea.NewView(m.drawn)
	v.AltScreen = true
	if m.editing {
		if x, ok := m.filterCursor(); ok {
			v.Cursor = tea.NewCursor(x, m.height-1)
		}
	}
	return v
}

// frame returns the screen: height lines of width cells.
func (m *model) frame() string {
	if m.width <= 0 || m.height <= 0 {
		return ""
	}
	b := make([]byte, 0, m.height*(m.width+16))
	switch body := m.height - 1; {
	case m.page == onHelp:
		b = m.lines(b, m.helpLines(), body)
	case m.page == onCounter:
		b = m.lines(b, counterLines(m), body)
	case m.source == nil:
		b = m.lines(b, m.waitingLines(), body)
	default:
		b = m.rows(b)
	}
	return string(m.statusLine(b))
}

// rows draws the headings and the visible rows.
func (m *model) rows(b []byte) []byte {
	l, t := &m.columns, &m.table
	reading := &m.source.reading
	l.cells = l.cells[:0]
	for _, r := range t.window {
		for c := range columns {
			l.cells = append(l.cells, c.cell(r, reading))
		}
	}
	l.measure(m.method, t.by, len(t.window))
	l.fit(m.width)

	if m.height > 2 {
		b = append(b, m.ink.heading.on...)
		b = m.line(b, t.heading, " ")
		b = append(b, m.ink.heading.off...)
		b = append(b, '\n')
	}
	end := m.source.history.end(reading.Now)
	for i := range t.height {
		if i < len(t.window) {
			b = m.row(b, i, end)
		} else {
			b = append(appendBlanks(b, m.width), '\n')
		}
	}
	return b
}

// heading returns the heading of a column, with an arrow if the table is ordered by it.
func (t *table) heading(c Column) string {
	switch {
	case c != t.by:
		return describe[c].heading
	case t.descends():
		return describe[c].heading + "▼"
	}
	return describe[c].heading + "▲"
}

// row draws row i of the window. end is the last pass of its trend.
func (m *model) row(b []byte, i int, end int64) []byte {
	l, t := &m.columns, &m.table
	r := t.window[i]
	cells := l.cells[i*int(columns):][:columns]
	text := func(c Column) string {
		if c == Trend {
			return string(drawTrend(nil, r.trend, end, l.width[Trend]))
		}
		return cells[c]
	}

	style, mark := ink{}, " "
	onlyErrors := r.Completion() && r.Note() == "" // the number of errors is a value, and needs no mark
	if cells[Note] != "" && !onlyErrors {
		style, mark = m.ink.note, "!"
	}
	if t.offset+i == t.cursor {
		style = m.ink.selected
		if mark == " " {
			mark = ">"
		}
	}

	b = append(b, style.on...)
	b = m.line(b, text, mark)
	b = append(b, style.off...)
	return append(b, '\n')
}

// line draws the cells of one row, exactly m.width cells of the terminal.
func (m *model) line(b []byte, text func(Column) string, mark string) []byte {
	l, left := &m.columns, m.width
	put := func(s string, w int, right bool) {
		w = max(0, min(w, left))
		b = appendCell(b, m.method, s, w, right)
		left -= w
	}

	put(mark, markWidth, false)
	for c := range columns {
		if l.width[c] == 0 {
			continue
		}
		if c != Name {
			put("", l.gap, false)
		}
		put(text(c), l.width[c], describe[c].right)
	}
	return appendBlanks(b, left)
}

// lines draws n lines of a page, starting at m.scroll.
func (m *model) lines(b []byte, lines []string, n int) []byte {
	m.scroll = max(0, min(m.scroll, len(lines)-n))
	lines = lines[m.scroll:]
	for i := range n {
		s := ""
		if i < len(lines) {
			s = lines[i]
		}
		b = append(appendStyled(b, m.method, s, m.width), '\n')
	}
	return b
}

// appendStyled is appendCell for a text with our own control sequences.
func appendStyled(dst []byte, method ansi.Method, s string, width int) []byte {
	if method.StringWidth(s) > width {
		s = truncate(method, s, width)
	}
	dst = append(dst, s...)
	return appendBlanks(dst, width-method.StringWidth(s))
}

// waitingLines says for which mirror the table waits.
func (m *model) waitingLines() []string {
	if m.waiting == nil {
		return nil
	}
	return []string{
		"",
		"  waiting for the mirror " + format.Printable(m.o.Path),
		"",
		"  flowtally run --config FILE writes one; --mirror PATH or --instance NAME reads another",
	}
}

func (m *model) helpLines() []string {
	lines := []string{""}
	for _, group := range m.keys.FullHelp() {
		for _, k := range group {
			lines = append(lines, fmt.Sprintf("  %-8s  %s", k.Help().Key, k.Help().Desc))
		}
	}
	return append(lines, "", "  ! marks a counter with a note. A rate is counted between the two newest samples.",
		"  TREND is packets/s in each period of the history, the newest at the right.")
}

// drawTrend appends a bar for each of the last width passes up to end. Seven heights show a rate relative to the highest
// one among them. A rate of 0 is the lowest bar, and an unknown one is blank.
func drawTrend(dst []byte, t *trend, end int64, width int) []byte {
	const bars = "▁▂▃▄▅▆▇█" // three bytes each
	first := end - int64(width) + 1
	most := float32(0)
	for pass := first; pass <= end; pass++ {
		v, _ := t.at(pass)
		most = max(most, v)
	}

	for pass := first; pass <= end; pass++ {
		v, known := t.at(pass)
		if !known {
			dst = append(dst, ' ')
			continue
		}
		level := 0
		if v > 0 {
			level = 1 + min(6, int(v/most*7))
		}
		dst = append(dst, bars[3*level:3*level+3]...)
	}
	return dst
}

// plain returns the screen as text without blank lines, for Run to leave on the terminal. It drops rows to make room for
// the shell's prompt.
func (m *model) plain() string {
	var lines []string
	for line := range strings.Lines(ansi.Strip(m.frame())) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			lines = append(lines, line+"\n")
		}
	}
	if last := len(lines) - 1; last >= 2 && last+1 >= m.height {
		lines = append(lines[:m.height-2], lines[last])
	}
	return strings.Join(lines, "")
}
