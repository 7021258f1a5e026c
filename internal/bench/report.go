package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// Report is the document that `flowtally-bench -o json` prints.
type Report struct {
	Schema  int      `json:"schema"`
	Machine Machine  `json:"machine"`
	Results []Result `json:"results"`
	// Complete is false where the run ended before it had measured each row.
	Complete bool `json:"complete"`
}

// Result is one row. It has no figures, and Reason says why, where the row could not be measured.
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
	Pass   *bool    `json:"pass"`  // Ratio <= Bound; null without either, and where Noisy leaves it open
	Reason string   `json:"reason,omitempty"`

	// Noisy: other work on the machine disturbed every attempt, and Reason says how. The figures, if there are any, are
	// of the attempt with the narrowest interval.
	Noisy bool `json:"noisy"`
	// Tried is the number of rounds that began, in all attempts together.
	Tried int `json:"rounds_tried"`
	// Disturbed is the number of rounds, of Tried, whose conditions did not hold. They are in no figure, unless Reason
	// says that there was nothing better.
	Disturbed int `json:"rounds_disturbed"`
	// FailedStarts is how often the load of the host kept the row's processes from starting.
	FailedStarts int `json:"failed_starts"`
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

func measured(row Row, s summary, t tally) Result {
	r := empty(row)
	r.fill(s, t)
	if r.Bound != nil {
		pass := s.ratio <= *r.Bound
		r.Pass = &pass
	}
	return r
}

// noisy is the result of a row that other work disturbed. best is empty if no round was finished.
func noisy(row Row, best summary, t tally, reason string) Result {
	r := unmeasured(row, reason)
	r.fill(best, t)
	r.Noisy = true
	r.judge()
	return r
}

// fill sets the figures, unless s has too little to give any.
func (r *Result) fill(s summary, t tally) {
	r.Tried = t.rounds
	r.Disturbed = t.disturbed
	r.FailedStarts = t.starts
	if s.rounds == 0 || 2*s.lost >= s.rounds {
		return
	}
	r.Ours = &s.ours
	r.RefNS = &s.ref
	r.Ratio = &s.ratio
	r.Rounds = s.rounds
	if !math.IsInf(s.spread, 0) {
		r.Spread = &s.spread
	}
	if !math.IsInf(s.low, 0) && !math.IsInf(s.high, 0) {
		r.Low = &s.low
		r.High = &s.high
	}
}

// judge gives a noisy row a verdict only if its whole interval is on one side of the bound.
func (r *Result) judge() {
	r.Pass = nil
	if r.Bound == nil || r.Low == nil {
		return
	}
	if pass := *r.High < *r.Bound; pass || *r.Low > *r.Bound {
		r.Pass = &pass
	}
}

// missed reports whether the verdict is that the whole interval is above the bound.
func (r Result) missed() bool {
	return r.Pass != nil && !*r.Pass && r.Low != nil && *r.Low > *r.Bound
}

// again combines r, which has missed, with a later measurement of the same row: the later figures, with an interval that
// encloses both.
func (r Result) again(later Result) Result {
	later.Tried += r.Tried
	later.Disturbed += r.Disturbed
	later.FailedStarts += r.FailedStarts
	if later.Low != nil {
		low := min(*r.Low, *later.Low)
		high := max(*r.High, *later.High)
		later.Low, later.High = &low, &high
	}
	if later.Ratio == nil || later.Noisy {
		later.Reason = fmt.Sprintf("%.2f at first, then %s", *r.Ratio, later.Reason)
	}
	if later.Noisy {
		later.judge()
	}
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
// figures or a verdict, because nothing has shown its bound to hold.
//
// With beyondNoise a busy machine fails no row: a ratio misses only if its whole confidence interval lies above the
// bound, and a noisy row misses nothing. A row that cannot be opened fails as before.
func (r *Report) Missed(beyondNoise bool) []string {
	var list []string
	for _, row := range r.Results {
		switch {
		case row.Bound == nil:
		case row.Noisy && beyondNoise:
		case row.Ratio == nil:
			list = append(list, fmt.Sprintf("%s: not measured: %s", row.Name, row.Reason))
		case row.Pass == nil:
			list = append(list, fmt.Sprintf("%s: %.2f times %s, too noisy for a verdict: %s", row.Name, *row.Ratio, row.Ref, row.Reason))
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
