// Package toprows holds the rows of the bench that are about flowtally top.
//
//   - top.4k: CPU time of `flowtally top` for each look at 4,096 counters, all of which count between two looks, ten
//     times a second, on a terminal of 80x24, in order of the rate. The reference (plainTop) is a Go program that looks as
//     often: it reads all counters, keeps the highest rates, formats their rows by strconv, and writes the whole screen.
//     It has no keys, no trends, and no comparison with the screen before.
//   - top.4k.200x60: the same on a terminal of 200x60, which both draw at every fourth look.
//
// Both processes are programs of their own, with their own garbage collector, and run at the same time on terminals
// that this process reads.
package toprows
