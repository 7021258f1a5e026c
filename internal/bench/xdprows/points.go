package xdprows

import (
	"fmt"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/plot"
)

// The panels of the plot.
const (
	OverMasks = "1,000 rules over 1 to 1,000 masks"
	OverRules = "32 to 65,536 rules over 24 masks"
)

// linearMost is the most rules that the linear matcher holds (bpf/trace.bpf.c).
const linearMost = 16384

// Points returns the points of the plot that generated sets give.
func Points() []plot.Row {
	var list []plot.Row
	add := func(panel string, x float64, n, masks int, peer bool) {
		set := func() input { return ofMasks(n, masks) }
		row := bench.Row{
			Name:     fmt.Sprintf("plot.%d.rules.%d.masks", n, masks),
			Unit:     above,
			Ref:      "linear matcher",
			Openings: 1,
			Rounds:   7,
			Open:     openLinear(set),
		}
		if n > linearMost {
			row.Ref, row.Open = "empty", openAlone(set)
		}
		p := plot.Row{
			Row:   row,
			Panel: panel,
			X:     x,
			Ours:  "flowtally",
		}
		if n <= linearMost {
			p.Ref = "linear matcher in BPF"
		}
		list = append(list, p)
		if peer {
			row := bench.Row{
				Name:     row.Name + ".rte",
				Unit:     above,
				Ref:      "rte_acl",
				Openings: 1,
				Rounds:   7,
				Peers:    "rte_acl",
			}
			list = append(list, plot.Row{
				Row:   aclRow(row, set),
				Panel: panel,
				X:     x,
				Ref:   "DPDK's rte_acl, one packet at a time, classification alone",
			})
		}
	}
	for _, masks := range []int{1, 4, 8, 24, 60, 200, 1000} {
		add(OverMasks, float64(masks), 1000, masks, true)
	}
	for _, n := range []int{32, 128, 512, 2048, 8192, 16384, 65536} {
		add(OverRules, float64(n), n, 24, n <= 8192)
	}
	return list
}
