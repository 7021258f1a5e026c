package format

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"
)

// JSON prints v as one line, with unprintable characters escaped.
func JSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(printableJSON(b.Bytes()))
	return err
}

// Table is a table of text: a heading and rows, with columns as wide as their widest cell. A heading beginning with ">"
// makes its column flush right.
type Table struct {
	Heading   []string
	rows      [][]string
	noteByRow map[int]string // lines below a row, outside the columns
}

// Add adds a row. It makes each cell Printable.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = Printable(c)
	}
	t.rows = append(t.rows, row)
}

// Note adds a line below the last row. It does not widen the columns.
func (t *Table) Note(line string) {
	if t.noteByRow == nil {
		t.noteByRow = map[int]string{}
	}
	t.noteByRow[len(t.rows)-1] += PrintableLines(line) + "\n"
}

// Render returns the table. Every line ends with a newline and has no trailing blanks.
func (t *Table) Render() string {
	heading := make([]string, len(t.Heading))
	right := make([]bool, len(t.Heading))
	for i, h := range t.Heading {
		heading[i], right[i] = strings.CutPrefix(h, ">")
	}
	width := make([]int, len(heading))
	for _, cells := range append([][]string{heading}, t.rows...) {
		for i, c := range cells {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}

	var out, line strings.Builder
	write := func(cells []string) {
		line.Reset()
		for i, c := range cells {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if right[i] {
				line.WriteString(pad + c)
			} else {
				line.WriteString(c + pad)
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	write(heading)
	for i, cells := range t.rows {
		write(cells)
		out.WriteString(t.noteByRow[i])
	}
	return out.String()
}

// Stack returns tables one below the other, separated by blank lines. It skips tables without rows. If all are empty, it
// returns the first, for its heading.
func Stack(tables ...Table) string {
	var texts []string
	for _, t := range tables {
		if len(t.rows) > 0 {
			texts = append(texts, t.Render())
		}
	}
	if len(texts) == 0 {
		return tables[0].Render()
	}
	return strings.Join(texts, "\n")
}
