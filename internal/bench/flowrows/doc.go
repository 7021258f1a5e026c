// Package flowrows holds the rows of the bench that are about the control plane: the cost of one
// change among 65,536 flows, against the same change among 1,024, and the cost of a whole set.
//
//   - flow.add.64k, flow.remove.64k: Engine.AddFlows, or RemoveFlows, of one flow, in this
//     process, counted by XDP.
//
//   - flow.add.64k.grpc, flow.remove.64k.grpc: the same through the control socket of
//     `flowtally run` and its plugin. The rows measure the CPU time of all three processes.
//
//   - flow.add.64k.rdma, flow.remove.64k.rdma: the same as the first two on the software NIC, which
//     counts all of the flows, with XDP behind it.
//
//   - flow.cli.64k: one run of `flowtally flows add`. The row measures the CPU time of this command, of
//     `flowtally run` and of its plugin.
//
//   - flow.memory.64k: anonymous memory (RssAnon) of `flowtally run` and its plugin together, after
//     a collection: the difference between 65,536 flows and 1,024, for each flow, against what the same flows take
//     in a slice of this process, with a map by their names. The mirror is in neither: it is a file.
//
//   - set.start.100k: the start of `flowtally run` with 100,000 flows, until it says that it counts. CPU time of it and
//     its plugin, against reading the file's YAML into nodes: the library's part of every command that takes the file.
//
//   - set.apply.1of100k: one `flowtally apply` of a file in which one of 100,000 flows differs. CPU time of the command
//     and of both processes of the instance, against the same.
//
//   - set.lock.100k: the longest time for which a change of 100,000 flows keeps the readers of the control lock out: they
//     are added, get another label, then another match, and are removed. CPU time of this process, against the same.
//     The short form has 10,000 flows in place of these.
//
//   - hooks.start.240, hooks.burst.240, hooks.idle.240, hooks.stop.240: CPU time per interface of an instance that
//     counts both directions of 240 veths, against 16: its start, the coming of the interfaces while it runs, a second
//     without packets, its end. What an instance costs beside its interfaces is in both, so start and idle are far
//     below 1. The short form leaves these rows out: the kernel waits an RCU grace period for each program of TCX.
//
// Every instance polls once a second: a poll cycle reads every counter, and is no part of a
// change. The instances are made once, by the first row that needs them, on veth pairs in a network
// namespace of their own, and serve all rows; Row.Release ends them. The rows need the privileges to
// attach BPF programs, the programs flowtally and flowtally-plugin, and,
// for the software NIC, the uverbs kernel beside them (Preload) and the host's rdma-core.
package flowrows
