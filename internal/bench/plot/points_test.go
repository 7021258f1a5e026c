package plot_test

import (
	"fmt"
	"testing"

	"github.com/flowtally/flowtally/internal/bench/plot"
)

// TestRowsBecomePointsOfTheirCurves: both sides of a row do, unless a side is not drawn or its cost is not above 0.
func TestRowsBecomePointsOfTheirCurves(t *testing.T) {
	panels := []plot.Panel{{Title: "p"}, {Title: "other"}}
	row := func(x float64, ref string) plot.Row {
		return plot.Row{Panel: "p", X: x, Ours: "ours", Ref: ref}
	}
	plot.Add(panels, row(1, "ref"), 5, 10)
	plot.Add(panels, row(2, "ref"), 6, 12)
	plot.Add(panels, row(4, ""), 7, 8)
	plot.Add(panels, row(8, "ref"), 9, 0)
	got := fmt.Sprint(panels)
	if want := "[{p   [{ours false [{1 5} {2 6} {4 7} {8 9}]} {ref false [{1 10} {2 12}]}]} {other   []}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
