package xdp

import (
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// Cost returns the estimated cost of a packet with the present rules: the mean and the worst case of each family.
func (b *Backend) Cost() dataplane.Cost {
	c := b.rules.Cost()
	out := dataplane.Cost{Nodes: c.Nodes, Rules: c.Entries, NS: costParser + c.NS, Bound: b.worstCost}
	out.Other, out.IPv4, out.IPv6 = worstOf(c.Worst[0]), worstOf(c.Worst[1]), worstOf(c.Worst[2])
	return out
}

func worstOf(p xdp.Path) dataplane.WorstCost {
	return dataplane.WorstCost{Nodes: p.Nodes, Rules: p.Entries, NS: costParser + p.NS()}
}
