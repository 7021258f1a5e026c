package dataplane

// Cost is what XDP's search for the flow of a packet takes. Nodes and rules are counts, the same on every host. NS is an
// estimate in nanoseconds, above a program that returns at once.
type Cost struct {
	Nodes, Rules, NS float64 // means over packets that the flows match
	// Worst cases of a frame of each kind: no packet touches more.
	IPv4, IPv6, Other WorstCost
	Bound             int // xdp.worst_cost
}

// WorstCost is the most that one packet touches: nodes of trees and of hash tables, and rules that it is compared with.
type WorstCost struct {
	Nodes, Rules int
	NS           float64
}

// Steps is the number that xdp.worst_cost bounds.
func (w WorstCost) Steps() int { return w.Nodes + w.Rules }

// Worst is the worst of all kinds of frames.
func (c *Cost) Worst() WorstCost {
	worst := c.IPv4
	for _, w := range []WorstCost{c.IPv6, c.Other} {
		if w.Steps() > worst.Steps() {
			worst = w
		}
	}
	return worst
}
