// Package pollrows holds the row of the bench that is about the way from the
// kernel to the mirror.
//
//   - poll.xdp.4k: one cycle of the engine's poller over 4,096 counters: each is
//     read from the BPF map's memory for every CPU and summed, the base of its
//     source is added, and 64 blocks are published. The poller runs busy, pinned
//     to the bench's CPU, and what counts is the CPU time of the whole process
//     over many cycles. Against one copy, on the same CPU, of as many bytes as
//     such a cycle cannot but touch: 16 are read per counter and CPU, and 24 are
//     written per counter. What the cycle reads besides (the bases) is not
//     in the floor.
//
// It needs the privileges to make BPF maps.
package pollrows
