package dataplane

// Cost is the work of XDP to find the flow of one packet. Nodes and rules are the same on every host. NS is an estimate in
// nanoseconds, in addition to the cost of an XDP program that does nothing.
type Cost struct {
	// Means over packets that match the flows.
	Nodes, Rules, NS float64

	// Upper limits for each kind of frame.
	IPv4, IPv6, Other WorstCost

	// Bound is [XDPConfig.WorstCost].
	Bound int
}

// WorstCost limits the work for one packet: the nodes of trees and hash tables to visit, and the rules to compare.
type WorstCost struct {
	Nodes, Rules int
	NS           float64
}

// Steps returns the number that [XDPConfig.WorstCost] limits.
func (w WorstCost) Steps() int { return w.Nodes + w.Rules }

// Worst returns the cost of the most expensive kind of frame.
func (c *Cost) Worst() WorstCost {
	worst := c.IPv4
	for _, w := range []WorstCost{c.IPv6, c.Other} {
		if w.Steps() > worst.Steps() {
			worst = w
		}
	}
	return worst
}
