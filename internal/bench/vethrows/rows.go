package vethrows

import (
	"fmt"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/plot"
)

// Rows returns the rows that compare with nftables. They hold no resource until opened.
func Rows() []bench.Row {
	const unit = "ns per packet"
	row := func(name, ours, ref, above string, open opener) bench.Row {
		return bench.Row{
			Name:     name,
			Ours:     ours,
			Ref:      "nftables: 1,000 counters, " + ref,
			Bound:    1,
			Unit:     unit + " above " + above,
			Full:     true,
			Peers:    "nft",
			Openings: 3,
			Rounds:   31,
			Time:     40 * time.Second,
			Open:     open,
		}
	}
	const one = "a one-rule drop"
	const dropped = "1,000 flows that count and drop, native XDP on a veth"
	const passed = "1,000 flows that count on a veth by TCX"
	const none = "no hook"
	const inMap = "named, in a map"
	const inConcat = "named, in a map from source address and port"
	const inSet = "in the elements of a set"
	return []bench.Row{
		row("xdp.vs.nft.map", dropped, inMap, one, openDrop(counterMap, byPort, 1)),
		row("xdp.vs.nft.concat", dropped+" by source address and port", inConcat, one, openDrop(concatMap, bySource, 1)),
		row("xdp.vs.nft.set", dropped, inSet, one, openDrop(counterSet, byPort, 1)),
		row("xdp.vs.nft.vmap", dropped, "named, behind a verdict map", one, openDrop(verdictMap, byPort, 1)),
		row("xdp.vs.nft.linear", dropped, "named, one rule after the other", one, openDrop(linear, byPort, 32)),
		row("veth.1k", passed, inMap, none, openCount(counterMap, byPort)),
		row("veth.1k.concat", passed+" by source address and port", inConcat, none, openCount(concatMap, bySource)),
		row("veth.1k.set", passed, inSet, none, openCount(counterSet, byPort)),
	}
}

// key says which fields of a packet the flows look at.
type key int

const (
	byPort   key = iota // the destination port
	bySource            // the source address and the destination port
)

// Points returns the points of the plot that nftables gives, for its panel over rules: rules of one port, one after the
// other, and a map from the port.
func Points(panel string) []plot.Row {
	var list []plot.Row
	for _, n := range []int{32, 128, 512, 2048, 8192} {
		point := func(name, curve string, rules ruleset, by int) {
			row := bench.Row{
				Name:     fmt.Sprintf("plot.nft.%s.%d", name, n),
				Unit:     "ns per packet",
				Ref:      "one rule",
				Peers:    "nft",
				Openings: 1,
				Rounds:   7,
				Open:     openPoint(rules, n, by),
			}
			list = append(list, plot.Row{
				Row:   row,
				Panel: panel,
				X:     float64(n),
				Ours:  curve,
			})
		}
		point("linear", "nftables: n ports, one rule after the other, on veth", linear, max(1, n/32))
		point("map", "nftables: a map of n ports, on veth", counterMap, 1)
	}
	return list
}
