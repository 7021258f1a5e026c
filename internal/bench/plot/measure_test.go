package plot_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/plot"
)

// Both sides of a row become points of their curves, a row that cannot be opened becomes none, and a cost that is not
// above 0 has no place.
func TestMeasureMakesPointsOfRowsWithACost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs CPU affinity: Linux")
	}
	row := func(x, ours, ref float64, err error) plot.Row {
		side := func(ns float64) bench.Side {
			return func(context.Context, int) (float64, error) { return ns, nil }
		}
		return plot.Row{Panel: "p", X: x, Ours: "ours", Ref: "ref", Row: bench.Row{Name: "row", Open: func(context.Context, bench.Env) (*bench.Sides, error) {
			return &bench.Sides{Ours: side(ours), Ref: side(ref), N: 1, Paced: true}, err
		}}}
	}
	panels := []plot.Panel{{Title: "p"}, {Title: "other"}}
	hidden := row(4, 7, 8, nil)
	hidden.Ref = ""
	rows := []plot.Row{row(1, 5, 10, nil), row(2, 6, 12, nil), row(3, 1, 1, errors.New("refused")), hidden}
	report, err := plot.Measure(t.Context(), rows, bench.Options{Rounds: 7, Openings: 1, Anywhere: true}, panels)
	if err != nil {
		t.Fatal(err)
	}
	if r := report.Results[2]; r.Ratio != nil || r.Reason != "refused" {
		t.Errorf("the row that was refused: %+v", r)
	}
	want := map[string][]plot.Point{"ours": {{1, 5}, {2, 6}, {4, 7}}, "ref": {{1, 10}, {2, 12}}}
	if len(panels[0].Curves) != 2 || len(panels[1].Curves) != 0 {
		t.Fatalf("%+v", panels)
	}
	for _, c := range panels[0].Curves {
		if len(c.Points) != len(want[c.Name]) {
			t.Errorf("%s: %v", c.Name, c.Points)
			continue
		}
		for i, p := range c.Points {
			if p != want[c.Name][i] {
				t.Errorf("%s: %v", c.Name, c.Points)
			}
		}
	}
}
