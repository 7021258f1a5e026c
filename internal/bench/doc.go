// Package bench measures: every figure is a ratio of ours to a floor or a peer
// taken in the same run, on the same CPU, interleaved with it.
//
// # How a row is measured
//
// A [Row] has two or three sides: ours, the reference and, where the figure is
// a cost above something (an XDP program above an empty one), the base. They
// run on one thread that is pinned to one CPU, in rounds: ours, base, ref; ref,
// base, ours; and so on, each for about 2 ms, 61 rounds, in five openings of the
// row: where its memory lies is drawn anew with each. The printed ours_ns and
// ref_ns are medians over the rounds (above the base of the same round), and
// ratio is the one over the other.
//
// Sides that only compute are timed by the CPU clock of their thread, so that
// time taken by other programs is not theirs; sides that wait for another CPU
// are timed by the wall clock. The collector is off while rounds run.
//
// # Noise
//
// Every round has a ratio of its own, in which both sides saw the same machine.
// spread is the interquartile range of these over their median; low and high
// enclose their median with at least 95 % confidence, whatever their
// distribution (order statistics, the sign test). An attempt is noisy when the
// spread is above 0.10 (a row may say otherwise) and that interval does not lie on
// one side of the bound: its rounds differ, and there are too few of them to tell.
// It is repeated, up to 5 times; if none is quiet the row is null and its reason
// says so. No attempt is repeated because its ratio was bad: an interval above
// the bound ends the row as one below it does. A round in which a
// side cost no more than the base counts as an extreme ratio; more than one in
// twenty make the attempt noisy.
//
// A row whose conditions do not hold in a round (a writer that must keep a rate
// and was not on its CPU) says [ErrDisturbed]; the round is discarded and run
// again, up to three times as many as are wanted.
//
// # Company on the core
//
// A virtual CPU can be one of two threads of a core whose other thread belongs to
// another machine. Work there is in no clock of this machine and slows the two
// sides unequally (xdp.one was 1.2 alone and 1.55 in company). Before a side and
// after it a loop of additions that do not wait for one another is timed: alone
// on the core it costs the same to 0.2 %, in company a third to two thirds more.
// A side that was not alone is run again. Rows about two CPUs also ask that the
// other CPU be another core at that moment.
//
// # The rows
//
// The package comments of shmrows (the mirror, from Go and from C), xdprows (the
// packet path) and pollrows (from the kernel to the mirror) describe each row and
// its reference. Floors are taken in the same form
// as ours: the same loop, through a handle. Where ours does more than the floor by nature (a snapshot copies
// labels too, a poll cycle reads bases), that is not in the floor.
//
// # Verdicts
//
// A gate fails on a ratio above the row's bound, and on a bounded row that is
// null. The short form for CI fails only where low is above the bound too: on a
// miss beyond its own noise.
package bench
