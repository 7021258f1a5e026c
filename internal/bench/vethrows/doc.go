// Package vethrows holds the rows of the bench that compare with nftables, on veth pairs in a network namespace
// of its own. They need the program nft and are measured with --peers.
//
// Packets of 64 bytes are sent by a program that BPF_PROG_TEST_RUN repeats (bpf/send.bpf.c), to 1,000 destination
// ports of UDP in turns. The receiving end processes a packet in the same system call, so the CPU
// time of the thread holds all of it. Each hook has a pair of its own. A side and its base take turns, in pieces of
// a millisecond; each cost is the lower quartile of its pieces.
//
//   - xdp.vs.nft.map, .concat, .set, .vmap, .linear: 1,000 flows, each with a counter, that drop, by native XDP, above a
//     program that drops all. nftables has 1,000 named counters in a map from the port, or in one from the source address
//     and the port, or a counter in each element of a set, or named counters behind a verdict map, or in 1,000 rules one
//     after the other. They drop, above one rule that drops all. The flows look at the fields that nftables looks at.
//   - veth.1k, .concat, .set: 1,000 flows that count, by the hook that is chosen without a mode, against such maps and
//     such a set. Both above the same pair without a hook, whose packets end in the IP stack because they are addressed
//     to another host.
//
// nftables counts at the ingress hook of the interface (a table of the family netdev), the nearest to XDP that it has.
// Before a time is taken, the counters of nftables are compared with the packets that were sent. Our own are compared in each round.
package vethrows
