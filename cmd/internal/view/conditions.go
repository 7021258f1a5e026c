package view

import (
	"io"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane"
)

// conditionJSON is one condition in the JSON of flows list.
type conditionJSON struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Object   string `json:"object"`
	Text     string `json:"text"`
	Fix      string `json:"fix"`
	Since    string `json:"since"`
}

// severityWord names a severity. An unknown one, from a newer plugin, counts as the worst.
func severityWord(s dataplane.Severity) string {
	switch s {
	case dataplane.Low:
		return "low"
	case dataplane.Medium:
		return "medium"
	}
	return "high"
}

func conditionsJSON(conditions []dataplane.Condition) []conditionJSON {
	out := make([]conditionJSON, len(conditions))
	for i, c := range conditions {
		out[i] = conditionJSON{string(c.Code), severityWord(c.Severity), c.Object, c.Text, c.Fix, c.Since.UTC().Format(time.RFC3339)}
	}
	return out
}

// renderConditions returns a table of conditions, each with its next step, or "" if there are none.
func renderConditions(conditions []dataplane.Condition, now time.Time) string {
	if len(conditions) == 0 {
		return ""
	}
	t := format.Table{Heading: []string{"CONDITION", "SEVERITY", ">SINCE", "OBJECT", "TEXT"}}
	for _, c := range conditions {
		t.Add(string(c.Code), severityWord(c.Severity), format.Age(now.Sub(c.Since)), format.OrDash(c.Object), c.Text)
		if c.Fix != "" {
			t.Note("  try: " + c.Fix)
		}
	}
	return t.Render()
}

// printAbove prints text, and the conditions below it.
func printAbove(w io.Writer, text string, conditions []dataplane.Condition, now time.Time) error {
	if below := renderConditions(conditions, now); below != "" {
		text += "\n" + below
	}
	_, err := io.WriteString(w, text)
	return err
}
