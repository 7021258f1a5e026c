package view

import (
	"io"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/probe"
)

// ChecksJSON is the output of doctor -o json. Programs read it: fields are only added.
type ChecksJSON struct {
	Schema int         `json:"schema"`
	Checks []checkJSON `json:"checks"`

	Shared []sharedCheckJSON `json:"shared,omitempty"` // the results that several objects have for one reason, each once
}

// checkJSON is one result in the JSON of doctor.
type checkJSON struct {
	Backend string `json:"backend"` // "" for a result about the host
	Object  string `json:"object"`
	Feature string `json:"feature"`
	Answer  string `json:"answer"` // yes, no or inconclusive
	Reason  string `json:"reason"`
	Fix     string `json:"fix"`
}

// sharedCheckJSON is a result that several objects have for one reason.
type sharedCheckJSON struct {
	Backend string   `json:"backend"`
	Feature string   `json:"feature"`
	Answer  string   `json:"answer"`
	Reason  string   `json:"reason"`
	Fix     string   `json:"fix"`
	Count   int      `json:"count"`   // of the objects
	Objects []string `json:"objects"` // the first of them, at most 8
}

// checkGroup is a result with all objects that share it.
type checkGroup struct {
	probe.Result
	objects []string
}

// groupChecks groups results that differ only in their object, so that one line can show them. It does not group results
// without a reason. The groups are in the order of their first results.
func groupChecks(results []probe.Result) (out []checkGroup) {
	indexByResult := make(map[probe.Result]int) // without its object
	for _, r := range results {
		key := r
		key.Object = ""
		n, known := indexByResult[key]
		if !known || r.Reason == "" || r.Object == "" {
			n = len(out)
			indexByResult[key] = n
			out = append(out, checkGroup{Result: r})
		}
		out[n].objects = append(out[n].objects, r.Object)
	}
	return out
}

// Checks prints the results of doctor.
func Checks(w io.Writer, asJSON bool, results []probe.Result) error {
	if !asJSON {
		_, err := io.WriteString(w, renderChecks(results))
		return err
	}

	out := ChecksJSON{Schema: 1, Checks: make([]checkJSON, len(results))}
	for i, r := range results {
		out.Checks[i] = checkJSON{r.Backend, r.Object, r.Feature, r.Answer.String(), r.Reason, r.Fix}
	}
	for _, g := range groupChecks(results) {
		if n := len(g.objects); n > 1 {
			out.Shared = append(out.Shared, sharedCheckJSON{
				Backend: g.Backend,
				Feature: g.Feature,
				Answer:  g.Answer.String(),
				Reason:  g.Reason,
				Fix:     g.Fix,
				Count:   n,
				Objects: g.objects[:min(n, mostNames)],
			})
		}
	}
	return format.JSON(w, out)
}

// renderChecks returns the results as a table, with each fix on a line below its result.
func renderChecks(results []probe.Result) string {
	mark := map[probe.Answer]string{probe.Yes: "✓ yes", probe.No: "✗ no", probe.Inconclusive: "? inconclusive"}
	t := format.Table{Heading: []string{"ANSWER", "OBJECT", "FEATURE", "REASON"}}
	for _, g := range groupChecks(results) {
		object := g.Object
		if len(g.objects) > 1 {
			object = listNames(g.objects)
		}
		t.Add(mark[g.Answer], format.OrDash(object), g.Feature, format.OrDash(g.Reason))
		if g.Fix != "" && g.Answer != probe.Yes {
			t.Note("  try: " + g.Fix)
		}
	}
	return t.Render()
}
