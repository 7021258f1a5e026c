// Package vethrows holds the rows of the bench that compare with nftables, on veth pairs in a network namespace
// of its own. They need the program nft and are measured with --peers.
//
// Packets of 64 bytes are sent by a program that BPF_PROG_TEST_RUN repeats (bpf/send.bpf.c), to 1,000 destination
// ports of UDP in turns. The receiving end processes a packet in the same system call, so the CPU
// time of the thread holds all of it. Each hook has a pair of its own. A side and its base take turns, in pieces of
// a millisecond; each cost is the lower quartile of its pieces.
//
//   - xdp.vs.nft.map, .vmap, .linear: 1,000 flows, each with a counter, that drop, by native XDP, above a program
//     that drops all. nftables: 1,000 named counters in a map, behind a verdict map, or in 1,000 rules one after the
//     other, which drop, above one rule that drops all.
//   - veth.1k: 1,000 flows that count, by the hook that is chosen without a mode, against 1,000 named counters of nftables in a map.
//     Both above the same pair without a hook, whose packets end in the IP stack because they are addressed
//     to another host.
package vethrows
