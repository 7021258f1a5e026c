// Package gen draws random sets of flows, and random packets that match them or just miss them. Tests compare two matchers with
// them. The random numbers decide everything, so the same seed draws the same flows and packets.
package gen
