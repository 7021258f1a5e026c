// Package gen draws random rule sets and random packets that hit or nearly hit
// them, for tests that compare two matchers. Everything follows from the rng:
// the same seed draws the same flows and frames.
package gen
