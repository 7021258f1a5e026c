package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"
)

// outputFlag is -o, of every command that prints data.
type outputFlag struct {
	Output string `short:"o" help:"How data is printed: ${enum}." enum:"table,json" default:"table"`
}

func (f outputFlag) json() bool { return f.Output == "json" }

// printJSON prints v as one line of printable characters.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(printableJSON(b.Bytes()))
	return err
}

// table is a table of text: a heading, rows, columns as wide as their widest
// cell. Columns whose heading starts with ">" are set flush right.
type table struct {
	heading []string
	rows    [][]string
	notes   map[int]string // by row: a line below it that is no row
}

// add adds a row. It quotes a cell that holds unprintable characters.
func (t *table) add(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = printable(c)
	}
	t.rows = append(t.rows, row)
}

// note puts a line below the row added last.
func (t *table) note(line string) {
	if t.notes == nil {
		t.notes = map[int]string{}
	}
	t.notes[len(t.rows)-1] += printableLines(line) + "\n"
}

// stack returns tables one below the other, apart by a blank line, without those
// that have no rows; the first where none has.
func stack(tables ...table) string {
	var texts []string
	for _, t := range tables {
		if len(t.rows) > 0 {
			texts = append(texts, t.render())
		}
	}
	if len(texts) == 0 {
		return tables[0].render()
	}
	return strings.Join(texts, "\n")
}

// render returns the table, each line ended and without trailing blanks.
func (t *table) render() string {
	heading := make([]string, len(t.heading))
	right := make([]bool, len(t.heading))
	for i, h := range t.heading {
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
		out.WriteString(t.notes[i])
	}
	return out.String()
}
