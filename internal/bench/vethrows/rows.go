package vethrows

import (
	"time"

	"github.com/flowtally/flowtally/internal/bench"
)

// Rows returns the rows that compare with nftables. They hold no resource until opened.
func Rows() []bench.Row {
	const unit = "ns per packet"
	row := func(name, ref, above string, open opener) bench.Row {
		return bench.Row{Name: name, Ref: "nftables: 1,000 named counters, " + ref, Bound: 1, Unit: unit + " above " + above, Full: true, Peers: "nft", Openings: 3, Rounds: 31, Time: 40 * time.Second, Open: open}
	}
	const one = "a one-rule drop"
	return []bench.Row{
		row("xdp.vs.nft.map", "in a map", one, openDrop(counterMap, 1)),
		row("xdp.vs.nft.vmap", "behind a verdict map", one, openDrop(verdictMap, 1)),
		row("xdp.vs.nft.linear", "one rule after the other", one, openDrop(linear, 32)),
		row("veth.1k", "in a map", "no hook", openCount()),
	}
}
