// Package toprows holds the rows of the bench that are about flowtally top.
//
//   - top.4k: CPU time of `flowtally top` for each look at 4,096 counters, all of which count between two looks, ten
//     times a second, on a terminal of 80x24, in order of the rate. The reference is the same process asleep, which
//     makes one look an hour, and 2 % of a core: 2 ms for each look.
//   - top.4k.200x60: the same on a terminal of 200x60.
//
// Both processes are programs of their own, with their own garbage collector, and run at the same time on terminals
// that this process reads.
package toprows
