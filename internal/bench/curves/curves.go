// Package curves draws the plot of docs/performance.md: the cost of a packet over rules and masks, of flowtally and of
// its peers, from rows of the bench that it measures.
package curves

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/plot"
	"github.com/flowtally/flowtally/internal/bench/vethrows"
	"github.com/flowtally/flowtally/internal/bench/xdprows"
)

// Draw measures the points and writes the plot. The report holds the rows, with the reason of each that gave no point.
func Draw(ctx context.Context, w io.Writer, o bench.Options) (*bench.Report, error) {
	const label = "ns per packet above an empty program"
	panels := []plot.Panel{
		{Title: xdprows.OverMasks, XLabel: "masks", YLabel: label},
		{Title: xdprows.OverRules, XLabel: "rules", YLabel: label},
	}
	o.MaxSpread = 10 // a point is drawn, however wide
	report, err := plot.Measure(ctx, slices.Concat(xdprows.Points(), vethrows.Points(xdprows.OverRules)), o, panels)
	if err != nil {
		return nil, err
	}
	for i := range panels {
		panels[i].Curves = append(panels[i].Curves, tupleSearch(panels[i].Title))
	}
	m := report.Machine
	return report, plot.SVG(w, "Cost of a packet by the rules that it is matched with", []string{
		"65,536 packets at random points of random rules, one flow after the other; " + fmt.Sprintf("%s, Linux %s.", m.CPU, m.Kernel),
		"nftables is above one rule that drops every packet. " + tupleNote,
	}, panels)
}

// tupleNote describes the curve that is not of the run.
const tupleNote = "Dashed: recorded before the trees, in an earlier run on an AMD EPYC (Zen 4 class)."

// tupleSearch is the classifier of flowtally before its trees: one hash table, searched once for each mask. It took 64
// masks at most. Draw measured these points with the last commit that had it, at load 9.
func tupleSearch(panel string) plot.Curve {
	c := plot.Curve{Name: "flowtally with tuple space search only", Dashed: true}
	switch panel {
	case xdprows.OverMasks:
		c.Points = []plot.Point{{X: 1, Y: 13.7}, {X: 4, Y: 101}, {X: 8, Y: 198}, {X: 24, Y: 500}, {X: 60, Y: 1124}}
	case xdprows.OverRules:
		c.Points = []plot.Point{{X: 32, Y: 202}, {X: 128, Y: 338}, {X: 512, Y: 479}, {X: 2048, Y: 543}, {X: 8192, Y: 687}, {X: 16384, Y: 778}, {X: 65536, Y: 1600}}
	}
	return c
}
