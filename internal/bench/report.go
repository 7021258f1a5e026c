package bench

import (
	"encoding/json"
	"fmt"
	"io"
)

// Report is the document that `flowtally-bench -o json` prints.
type Report struct {
	Schema  int      `json:"schema"`
	Machine Machine  `json:"machine"`
	Results []Result `json:"results"`
	// Complete is false where the run ended before it had measured each row.
	Complete bool `json:"complete"`
}

// Result is one row. It has no figures, and Reason says why, where the row could not be measured or stayed too noisy to
// mean anything.
type Result struct {
	Name   string   `json:"name"`
	Ours   *float64 `json:"ours_ns"` // median over the rounds
	Ref    string   `json:"ref"`
	RefNS  *float64 `json:"ref_ns"` // median over the rounds
	Ratio  *float64 `json:"ratio"`  // median of the ratios of the rounds
	Spread *float64 `json:"spread"` // interquartile range of the rounds' ratios over their median
	Low    *float64 `json:"low"`    // 95 % confidence interval of the median of the rounds' ratios, of all measurements together
	High   *float64 `json:"high"`
	Rounds int      `json:"rounds"`
	Unit   string   `json:"unit"`
	Bound  *float64 `json:"bound"` // null: the row has no bound
	Pass   *bool    `json:"pass"`  // Ratio <= Bound; null without either
	Reason string   `json:"reason,omitempty"`

	busy bool // other work on this machine kept the row from being measured
}

// empty is the result of a row without figures.
func empty(row Row) Result {
	r := Result{Name: row.Name, Ref: row.Ref, Unit: row.Unit}
	if r.Unit == "" {
		r.Unit = "ns"
	}
	if row.Bound != 0 {
		r.Bound = &row.Bound
	}
	return r
}

func unmeasured(row Row, reason string) Result {
	r := empty(row)
	r.Reason = reason
	return r
}

func measured(row Row, s summary) Result {
	r := empty(row)
	r.Ours = &s.ours
	r.RefNS = &s.ref
	r.Ratio = &s.ratio
	r.Spread = &s.spread
	r.Low = &s.low
	r.High = &s.high
	r.Rounds = s.rounds
	if r.Bound != nil {
		pass := s.ratio <= *r.Bound
		r.Pass = &pass
	}
	return r
}

// missed says that the row lies above its bound with its whole interval.
func (r Result) missed() bool {
	return r.Bound != nil && r.Ratio != nil && *r.Ratio > *r.Bound && *r.Low > *r.Bound
}

// again combines r, which has figures, with a later measurement of the same row: the later figures, with an interval
// that encloses both.
func (r Result) again(later Result) Result {
	if later.Ratio == nil {
		later.Reason = fmt.Sprintf("%.2f at first, then %s", *r.Ratio, later.Reason)
		return later
	}
	low := min(*r.Low, *later.Low)
	high := max(*r.High, *later.High)
	later.Low, later.High = &low, &high
	return later
}

// List is the report of a run that measures nothing: rows with their bounds and references alone.
func List(rows []Row) *Report {
	r := &Report{Schema: 1, Complete: true}
	for _, row := range rows {
		r.Results = append(r.Results, unmeasured(row, ""))
	}
	return r
}

// Missed lists the rows for which a gate fails: every row whose ratio is above its bound, and every bounded row without
// figures, because nothing has shown its bound to hold.
//
// With beyondNoise a busy machine fails no row: a ratio misses only if its whole confidence interval lies above the
// bound, and a row may lack figures for noise or for want of time. A row that cannot be opened fails as before.
func (r *Report) Missed(beyondNoise bool) []string {
	var list []string
	for _, row := range r.Results {
		switch {
		case row.Bound == nil:
		case row.Ratio == nil:
			if !beyondNoise || !row.busy {
				list = append(list, fmt.Sprintf("%s: not measured: %s", row.Name, row.Reason))
			}
		case row.missed() || !beyondNoise && *row.Ratio > *row.Bound:
			list = append(list, fmt.Sprintf("%s: %.2f times %s, must not exceed %.2f (95 %% confidence %.2f to %.2f)",
				row.Name, *row.Ratio, row.Ref, *row.Bound, *row.Low, *row.High))
		}
	}
	return list
}

// WriteJSON prints the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	return nil
}
