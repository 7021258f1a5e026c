package bench

import (
	"fmt"
	"io"
	"strings"
)

// Table prints rows for people, each as soon as it is measured.
type Table struct {
	w    io.Writer
	name int // the width of the names
	err  error
}

// NewTable prints the heading of a table for rows.
func NewTable(w io.Writer, rows []Row) *Table {
	t := &Table{w: w, name: len("NAME")}
	for _, row := range rows {
		t.name = max(t.name, len(row.Name))
	}
	t.line("NAME", "OURS", "REF", "RATIO", "BOUND", "SPREAD", "", "AGAINST")
	return t
}

func (t *Table) line(name, ours, ref, ratio, bound, spread, verdict, against string) {
	if t.err != nil {
		return
	}
	_, t.err = fmt.Fprintf(t.w, "%-*s  %-10s  %-10s  %-6s  %-6s  %-7s  %-4s  %s\n", t.name, name, ours, ref, ratio, bound, spread, verdict, against)
}

// Add prints a row.
func (t *Table) Add(row Result, again bool) {
	bound := "-"
	if row.Bound != nil {
		bound = fmt.Sprintf("%.2f", *row.Bound)
	}
	against := row.Ref
	if row.Ratio == nil && row.Reason != "" {
		against = "not measured: " + row.Reason
	}
	if again {
		against += " (measured again)"
	}
	if row.Ratio == nil {
		t.line(row.Name, "-", "-", "-", bound, "-", "-", against)
		return
	}
	verdict := ""
	if row.Pass != nil {
		verdict = map[bool]string{true: "ok", false: "MISS"}[*row.Pass]
	}
	t.line(row.Name, figure(*row.Ours, row.Unit), figure(*row.RefNS, row.Unit), fmt.Sprintf("%.2f", *row.Ratio), bound,
		fmt.Sprintf("%.0f %%", 100**row.Spread), verdict, against)
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

func figure(ns float64, unit string) string {
	switch {
	case strings.HasPrefix(unit, "bytes"):
		return fmt.Sprintf("%.0f B", ns)
	case ns < 100:
		return fmt.Sprintf("%.2f ns", ns)
	case ns < 100e3:
		return fmt.Sprintf("%.0f ns", ns)
	default:
		return fmt.Sprintf("%.1f µs", ns/1e3)
	}
}
