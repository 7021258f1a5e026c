// Package bench measures ratios: every figure compares ours with a floor or a peer
// that is measured in the same run, on the same CPU, interleaved with ours.
//
// # How a row is measured
//
// A [Row] has two or three sides: ours, the reference and, where the figure is
// a cost above something (an XDP program above an empty one), the base. They
// run on one pinned thread, in rounds: ours, base, ref; ref, base, ours; and so
// on, each for about 2 ms, 61 rounds, in five openings of the row, because where
// memory lies changes the cost. The printed ours_ns and ref_ns are medians over the
// rounds (above the base of the same round), and ratio is the one over the other.
//
// Sides that only compute are timed by the CPU clock of their thread, sides that
// wait for another CPU by the wall clock. The collector is off meanwhile.
//
// # Noise
//
// Every round has a ratio of its own. spread is the interquartile range of these over
// their median; low and high enclose the median with at least 95 % confidence (order
// statistics, the sign test). An attempt is noisy when the spread is above 0.10 (a row may
// say otherwise) and low and high lie on both sides of the bound. It is repeated, up to 5
// times; if every attempt is noisy, the row is null with the reason. No attempt is repeated
// because its ratio was bad. A round in which a side cost no more than the base counts as
// an extreme ratio; more than one in twenty make the attempt noisy.
//
// A side whose conditions do not hold (a writer that must keep a rate and was not on its
// CPU) returns [ErrDisturbed]. The round is run again, up to three times as many as are wanted.
//
// # Company on the core
//
// A virtual CPU can be one of two threads of a core whose other thread belongs to
// another machine. Work there is in no clock of this machine and slows the two
// sides unequally. Before a side and after it a loop of independent additions is timed:
// in company it costs a third to two thirds more than alone. A side that was not alone is
// run again, except for sides that wait for a timer most of the time. Rows about
// two CPUs also ask that the other CPU be another core at that moment.
//
// # The rows
//
// The package comments of shmrows, xdprows, pollrows and flowrows describe each row and
// its reference. Floors are taken in the same form as ours: the same loop, through a handle.
//
// # Verdicts
//
// A gate fails on a ratio above the row's bound, and on a bounded row that is
// null. The short form for CI fails only where low is above the bound too.
package bench
