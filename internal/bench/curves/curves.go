// Package curves draws the plot of docs/performance.md: the cost of a packet over rules and masks, of flowtally and of
// its peers, from figures that were kept.
package curves

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/keep"
	"github.com/flowtally/flowtally/internal/bench/plot"
	"github.com/flowtally/flowtally/internal/bench/vethrows"
	"github.com/flowtally/flowtally/internal/bench/xdprows"
)

// Rows returns the rows of the points, for the bench to measure.
func Rows() []bench.Row { return plot.Bench(points()) }

func points() []plot.Row {
	return slices.Concat(xdprows.Points(), vethrows.Points(xdprows.OverRules))
}

// Draw writes the plot of the family of processors whose points are the newest.
func Draw(w io.Writer, files []keep.File) error {
	file, date := newest(files)
	if date == "" {
		return errors.New("no file has points of the plot: measure them by make bench BENCH_ARGS=--plot")
	}

	const label = "ns per packet above an empty program"
	panels := []plot.Panel{
		{Title: xdprows.OverMasks, XLabel: "masks", YLabel: label},
		{Title: xdprows.OverRules, XLabel: "rules", YLabel: label},
	}
	for _, row := range points() {
		if f := keep.Find(file.Points, row.Row); f != nil {
			plot.Add(panels, row, f.Ours, f.RefNS)
		}
	}
	for i := range panels {
		panels[i].Curves = append(panels[i].Curves, tupleSearch(panels[i].Title))
	}
	m := file.Machine
	return plot.SVG(w, "Cost of a packet by the rules that it is matched with", []string{
		"65,536 packets at random points of random rules, one flow after the other; " +
			fmt.Sprintf("%s (%s), Linux %s, %s.", m.CPU, file.Core, m.Kernel, date),
		"nftables is above one rule that drops every packet. " + tupleNote,
	}, panels)
}

// newest returns the file with the newest point, and its date, which is "" without any point.
func newest(files []keep.File) (file keep.File, date string) {
	for _, f := range files {
		if len(f.Points) == 0 {
			continue
		}
		last := slices.MaxFunc(f.Points, func(a, b keep.Figure) int { return cmp.Compare(a.Date, b.Date) })
		if last.Date > date {
			file, date = f, last.Date
		}
	}
	return file, date
}

// tupleNote describes the curve that is not of the run.
const tupleNote = "Dashed: recorded before the trees, in an earlier run on an AMD EPYC (Zen 4 class)."

// tupleSearch is the classifier of flowtally before its trees: one hash table, searched once for each mask. It took 64
// masks at most. These points were measured with the last commit that had it, at load 9.
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
