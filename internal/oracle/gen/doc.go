// Package gen draws random sets of flows, and random packets that match them or nearly do, for tests that compare two matchers. All
// follows from the random numbers: one seed draws the same flows and frames each time.
package gen
