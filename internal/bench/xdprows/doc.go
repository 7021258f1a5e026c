// Package xdprows holds the rows of the bench that are about the packet path.
//
// Programs run by BPF_PROG_TEST_RUN, 2^20 times in one system call, on a thread
// that is pinned and takes no signals (a signal ends such a run early); a side's
// figure is the CPU time of the thread. So there is no driver, no DMA and no
// cold packet in it: every parser pays the same for those.
//
//   - xdp.one: the program that is attached, with one rule of one UDP flow,
//     against one that returns XDP_PASS.
//   - xdp.exact.64k.hot: 65,536 rules of exact 5-tuples, one flow; the peer has
//     the same parser and finds the same flow in a BPF hash, and counts in a per-CPU array. Both
//     above the empty program.
//   - xdp.exact.64k.spread: the same, all flows in random order, made by a few
//     instructions that stand at the start of both and of the empty program.
//   - xdp.smp: xdp.one while the other CPU does the same with the same counter,
//     against itself alone. Closing the row checks that no packet was lost.
package xdprows
