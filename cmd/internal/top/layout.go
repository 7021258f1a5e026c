package top

import (
	"cmp"
	"slices"

	"github.com/charmbracelet/x/ansi"
)

// layout has the width of each column on the screen. Widths grow with the cells shown, and shrink only when the size of
// the terminal changes, so that the columns do not move about.
type layout struct {
	skip    int          // columns after the name scrolled out to the left
	natural [columns]int // the widest cell so far
	width   [columns]int // 0: not shown
	gap     int          // blank cells between columns
	hidden  int          // number of columns that do not fit

	cells []string // by row and column; reused for each frame
}

const (
	markWidth     = 1 // of the mark before the name
	widestTrend   = 32
	narrowName    = 12
	shortestNotes = 12
)

// measure widens the columns for the texts of n rows in l.cells.
func (l *layout) measure(method ansi.Method, by Column, n int) {
	for c := range columns {
		w := max(len(describe[c].heading), describe[c].least)
		if c == by {
			w = max(w, len(describe[c].heading)+1) // for the arrow
		}
		for row := range n {
			w = max(w, cellWidth(method, l.cells[row*int(columns)+int(c)]))
		}
		l.natural[c] = max(l.natural[c], min(w, describe[c].most))
	}
}

// fit chooses which columns to show in a width, by their rank, and how wide each one is.
func (l *layout) fit(width int) {
	clear(l.width[:])
	room := max(0, width-markWidth)

	// Leave room for the first two columns, as long as the name keeps narrowName.
	first := 2 * describe[PacketRate].most
	l.width[Name] = min(l.natural[Name], max(room-first, min(narrowName, room)))
	room -= l.width[Name]

	byRank := make([]Column, 0, columns)
	for c := Name + 1 + Column(l.skip); c < columns; c++ {
		byRank = append(byRank, c)
	}
	slices.SortFunc(byRank, func(a, b Column) int { return cmp.Compare(describe[a].rank, describe[b].rank) })
	l.hidden = 0
	l.gap = 1
	shown := 0
	for _, c := range byRank {
		w := l.natural[c]
		if c == Note {
			w = min(w, shortestNotes)
		}
		if room < w+l.gap {
			l.hidden++
			continue
		}
		l.width[c] = w
		room -= w + l.gap
		shown++
	}

	// Distribute what remains: first to the gaps, then to the notes, then to the trend.
	if room >= shown {
		l.gap = 2
		room -= shown
	}
	if l.width[Note] > 0 {
		more := min(room, l.natural[Note]-l.width[Note])
		l.width[Note] += more
		room -= more
	}
	if l.width[Trend] > 0 {
		l.width[Trend] += min(room, widestTrend-l.width[Trend])
	}
}

// cellWidth returns the number of cells of a text without control sequences.
func cellWidth(method ansi.Method, s string) int {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return method.StringWidth(s)
		}
	}
	return len(s)
}

// appendCell appends s in exactly width cells. It shortens a longer text with an ellipsis.
func appendCell(dst []byte, method ansi.Method, s string, width int, right bool) []byte {
	w := cellWidth(method, s)
	if w > width {
		s = truncate(method, s, width)
		w = cellWidth(method, s)
	}
	if right {
		dst = appendBlanks(dst, width-w)
	}
	dst = append(dst, s...)
	if !right {
		dst = appendBlanks(dst, width-w)
	}
	return dst
}

// truncate shortens a text to width cells, with an ellipsis. It cannot rely on the method's own Truncate. That counts an
// emoji of several code points as two cells, even if StringWidth, and the terminal, count more.
func truncate(method ansi.Method, s string, width int) string {
	cut := s
	for n := width; method.StringWidth(cut) > width; n-- {
		if n <= 0 {
			return ""
		}
		cut = method.Truncate(s, n, "…")
	}
	return cut
}

func appendBlanks(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, ' ')
	}
	return dst
}
