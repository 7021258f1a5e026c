package bench

import (
	"fmt"
	"io"
	"strings"
)

// Table prints rows for people, each as soon as it is measured.
type Table struct {
	w     io.Writer
	width int   // of the column of names
	err   error // the first one of w, after which nothing is printed
}

// NewTable prints the heading of a table for rows.
func NewTable(w io.Writer, rows []Row) *Table {
	t := &Table{w: w, width: len("NAME")}
	for _, row := range rows {
		t.width = max(t.width, len(row.Name))
	}
	t.print(cells{
		name:    "NAME",
		ours:    "OURS",
		ref:     "REF",
		ratio:   "RATIO",
		bound:   "BOUND",
		spread:  "SPREAD",
		against: "AGAINST",
	})
	return t
}

// cells are the texts of one line.
type cells struct{ name, ours, ref, ratio, bound, spread, verdict, against string }

func (t *Table) print(c cells) {
	if t.err != nil {
		return
	}
	_, t.err = fmt.Fprintf(t.w, "%-*s  %-10s  %-10s  %-6s  %-6s  %-7s  %-5s  %s\n",
		t.width, c.name, c.ours, c.ref, c.ratio, c.bound, c.spread, c.verdict, c.against)
}

// Add prints a row. again says that it was printed before, and has been measured again.
func (t *Table) Add(row Result, again bool) {
	c := cellsOf(row)
	if again {
		c.against += " (measured again)"
	}
	t.print(c)
}

func cellsOf(row Result) cells {
	c := cells{
		name:    row.Name,
		ours:    "-",
		ref:     "-",
		ratio:   "-",
		bound:   "-",
		spread:  "-",
		verdict: "-",
		against: row.Ref,
	}
	if row.Bound != nil {
		c.bound = fmt.Sprintf("%.2f", *row.Bound)
	}
	if row.Ratio == nil {
		if row.Reason != "" {
			c.against = "not measured: " + row.Reason + row.often()
		}
		return c
	}

	if row.Noisy {
		c.against += "; noisy: " + row.Reason + row.often()
	}
	c.ours = Figure(*row.Ours, row.Unit)
	c.ref = Figure(*row.RefNS, row.Unit)
	c.ratio = fmt.Sprintf("%.2f", *row.Ratio)
	if row.Spread != nil {
		c.spread = fmt.Sprintf("%.0f %%", 100**row.Spread)
	}
	switch {
	case row.Pass == nil && row.Noisy:
		c.verdict = "noisy"
	case row.Pass == nil:
		c.verdict = ""
	case *row.Pass:
		c.verdict = "ok"
	default:
		c.verdict = "MISS"
	}
	return c
}

// Err returns the first error of printing.
func (t *Table) Err() error {
	if t.err != nil {
		return fmt.Errorf("writing the report: %w", t.err)
	}
	return nil
}

// WriteTable prints the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	rows := make([]Row, len(r.Results))
	for i, result := range r.Results {
		rows[i].Name = result.Name
	}
	t := NewTable(w, rows)
	for _, row := range r.Results {
		t.Add(row, false)
	}
	return t.Err()
}

// often says how often a row was disturbed.
func (r Result) often() string {
	text := ""
	if r.Disturbed > 0 {
		text += fmt.Sprintf("; %d of %d rounds were disturbed", r.Disturbed, r.Tried)
	}
	if r.FailedStarts > 0 {
		text += fmt.Sprintf("; starts that failed: %d", r.FailedStarts)
	}
	return text
}

// Figure is a cost in a unit that leaves a person few digits to read.
func Figure(cost float64, unit string) string {
	switch {
	case strings.HasPrefix(unit, "bytes"):
		return fmt.Sprintf("%.0f B", cost)
	case cost < 100:
		return fmt.Sprintf("%.2f ns", cost)
	case cost < 1e3:
		return fmt.Sprintf("%.0f ns", cost)
	case cost < 10e3:
		return fmt.Sprintf("%.2f µs", cost/1e3)
	case cost < 100e3:
		return fmt.Sprintf("%.1f µs", cost/1e3)
	case cost < 1e6:
		return fmt.Sprintf("%.0f µs", cost/1e3)
	case cost < 1e9:
		return fmt.Sprintf("%.1f ms", cost/1e6)
	default:
		return fmt.Sprintf("%.2f s", cost/1e9)
	}
}
