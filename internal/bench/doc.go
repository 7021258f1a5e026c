// Package bench measures ratios: every figure compares ours with a floor or a peer. Both are measured in the same run,
// on the same CPU, interleaved.
//
// A [Row] has two or three sides: ours, the reference and, if the figure is a cost above another program (an XDP
// program above an empty one), the base. They run on one pinned thread, in rounds: ours, base, ref; ref, base, ours;
// and so on. The ratio of a row is the median of the rounds' ratios, above the base of the same round.
// docs/performance.md describes the method: clocks, noise, other load on the core, and when a row counts as not
// measured.
//
// # The rows
//
// Each package whose name ends in rows holds those of one subject, and its comment describes each row and its
// reference. A floor is taken in the same form as ours: the same loop, through a handle. flowtally-bench is the
// program: `make bench` and `make bench-short` run it from the sources. No release has it.
//
// # A run
//
// [Run] measures each row in attempts until one is quiet enough. An attempt opens the row several times and divides its
// rounds among the openings (attempt.go). A round runs every side once, or again where something else ran on the core
// (rounds.go, still.go). At the end of a run with a gate, rows that miss are measured again.
//
// # Verdicts
//
// A row that other work on the machine disturbed in every attempt is noisy. It has the best figures that there are, and
// a verdict only where its whole interval is on one side of the bound.
//
// A gate fails on a ratio above the row's bound, and on a bounded row without a verdict. The short form for CI fails
// only where the whole interval is above the bound, and forgives a noisy row. It does not forgive a row that cannot be
// opened.
package bench
