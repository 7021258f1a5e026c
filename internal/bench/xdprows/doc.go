// Package xdprows holds the rows of the bench that are about the packet path.
//
// Programs run by BPF_PROG_TEST_RUN, up to 2^17 times in one system call, on a thread that is pinned and takes no signals:
// a signal ends such a run early. A side's figure is the CPU time of the thread. So there is no driver, no DMA and no
// cold packet in it: every parser pays the same for those.
//
//   - xdp.hand.match, .miss, .arp: the program that is attached for one flow, against a program that somebody writes by hand
//     for that flow alone (bpf/hand.bpf.c), both above the empty program: a packet of the flow, one to another port, and ARP.
//   - xdp.one: the program that is attached, with one rule of one UDP flow,
//     against one that returns XDP_PASS.
//   - xdp.exact.64k.hot: 65,536 rules of exact 5-tuples, one flow; the peer has
//     the same parser and finds the same flow in a BPF hash, and counts in a per-CPU array. Both
//     above the empty program.
//   - xdp.exact.64k.spread: the same, all flows in random order, made by a few
//     instructions that stand at the start of both and of the empty program.
//   - xdp.smp: xdp.one while the other CPU does the same with the same counter,
//     against itself alone. Closing the row checks that no packet was lost.
//
// The rows below take rule sets and packets of package classbench, from one seed. Packets of a trace are made by a
// program in front of the classifier, which jumps to it (bpf/trace.bpf.c).
//
//   - xdp.masked.1k.hot, .spread, xdp.masked.16k.spread: 1,000 rules over 24 masks, or 16,000 over
//     200, in random order of priority; the whole program against one that returns XDP_PASS and makes no packets.
//   - xdp.ranges.1k.spread: 1,000 rules with random ranges of both ports, against the same rules without.
//   - xdp.classbench.F.N: sets of ClassBench's families, with a trace of low locality. Above the
//     empty program, against a linear matcher in BPF: 32 bytes a rule, the first match ends it.
//   - xdp.classbench.F.N.rte: the same cost against DPDK's rte_acl, one packet at a time, which only
//     classifies (src/acl.c, compiled when the row is prepared; --peers).
//   - xdp.vs.lpm.N: destination prefixes, the longest of which counts a packet, against the kernel's LPM trie and a per-CPU
//     array (bpf/lpm.bpf.c), both above the empty program. Opening the row compares the counts of each prefix.
//   - xdp.set.S.K: an address in a set of prefixes (package members), against the kernel's LPM trie with the same elements, both above
//     a program that only takes the address from the trace (bpf/members.bpf.c). S is the set: single addresses (hosts), lengths of a
//     blocklist (list), IPv6, and IPv6 of lengths that somebody chose (levels). K says whose addresses they are: of anybody (miss), in
//     the set (hit), or beside an element (near). Opening the row compares the answers.
//   - xdp.set.change: an element removed or added in turns, in a set of a million and in one of a thousand.
//   - xdp.set.load: a million elements from nothing into the kernel's memory, against one batch for the LPM trie.
//   - xdp.worst.*: the packet that costs most of those that a search finds, over ordinary sets, ClassBench's and sets that
//     somebody chose to make the classifier slow; the whole program against an empty one. xdp.worst.ipv6.extensions: eight
//     extension headers, against none.
//   - xdp.nonip.24, xdp.otherip.1: a frame that no rule can match, of ARP or of IPv6.
//   - xdp.update.10k: Datapath.Add of one of 64 rules in turns, to 10,000 rules over 24 masks, against the same with 100.
//   - xdp.load.16k: 16,000 rules over 200 masks from nothing to a veth. Against the same with one rule, and beside it what
//     somebody would load first: for each mask a BPF hash, which gets its rules in one batch. The floor has neither
//     the trees, which make the packets quick, nor the counters.
package xdprows
