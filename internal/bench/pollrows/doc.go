// Package pollrows holds the rows of the bench that are about the way from the
// kernel to the mirror.
//
//   - poll.xdp.4k: one cycle of the engine's poller over 4,096 counters, all of which have changed: each is
//     read from the BPF map's memory for every CPU and summed, the base of its
//     source is added, and 64 blocks are published. The poller runs busy, pinned
//     to the bench's CPU, and the row measures the CPU time of the whole process
//     over many cycles. Against a loop in Go on the same CPU, which sums as many slots
//     into rows and copies the rows. The bases, which the cycle reads too, are not in
//     the floor.
//   - poll.cold.10k, poll.cold.64k: one cycle of 10,000 and of 65,536 counters, all changed, at the
//     default period of 10 ms. Before it, a walk through 16 MiB on each CPU of the bench leaves
//     nothing of the cycle before in the caches of a core. The row measures the CPU time of the process
//     without the thread that walks. This includes the cost of waking the poller.
//     Against one copy of as many bytes as such a cycle cannot but touch: 16 are read per counter and CPU, and
//     24 are written per counter. A goroutine makes the copy, which a time.Ticker of the same period wakes, after
//     the same walk, measured in the same way. The poller does nothing meanwhile.
//   - live.read: one read of a counter in the kernel's own memory, with no poller in between. Against bare loads of the
//     same words.
//   - wire.live: from a packet's count on one CPU until Live.Load returns it on another, p50, against a cache line's way.
//   - wire.mirror: until HandleCounter.Load returns it, with a busy poller over 4,096 counters, p50, against one cycle.
//   - poll.cpus.64, poll.cpus.64.spread: one cycle of 65,536 counters of a machine of 64 CPUs, whose slots are
//     in memory of the bench; one counter in a hundred has counted on every CPU since the cycle before. They are
//     neighbours, or at random places. Against a copy of their slots, from the places where these are, and of their rows.
//   - poll.idle.0, poll.idle.10k: the CPU time of an instance without flows, or with 10,000 that XDP counts on a veth
//     without packets, in a second. Against a Go process of its own (runIdle), which wakes as often by a time.Ticker, reads
//     the slots of as many counters, and stores a sign of life. It leaves out the looks at interfaces and at health, once
//     in one or two seconds, and the comparison with the slots of the cycle before.
//
// It needs the privileges to make BPF maps.
package pollrows
