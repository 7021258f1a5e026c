// Package bench measures ratios: every figure compares ours with a floor or a peer
// that is measured in the same run, on the same CPU, interleaved with ours.
//
// A [Row] has two or three sides: ours, the reference and, if the figure is a cost above another
// program (an XDP program above an empty one), the base. They run on one pinned thread, in
// rounds: ours, base, ref; ref, base, ours; and so on. The ratio of a row is the median of
// the rounds' ratios, above the base of the same round. docs/performance.md describes the
// method: clocks, noise, other load on the core, and when a row counts as not measured.
//
// # The rows
//
// The package comments of shmrows, xdprows, pollrows, flowrows and toprows describe each row and
// its reference. Floors are taken in the same form as ours: the same loop, through a handle.
//
// # Verdicts
//
// A gate fails on a ratio above the row's bound, and on a bounded row that was
// not measured. The short form for CI fails only where low is above the bound too.
package bench
