// Package queuepair makes the queue pairs of the configuration and counts their completions.
//
// A [Set] holds the queue pairs of an instance. Each queue pair has a worker: a goroutine with a device
// context, a protection domain, a completion queue and memory of its own. Queue pairs share none of
// these, so none can delay another. The worker makes the objects, polls the completion queue, posts the
// operations of [Set.Post], and makes the objects again when a lost device returns. Other goroutines hand
// it functions (queuePair.call) and events (queuePair.sendEvent).
//
// # Completion sources
//
// Except with collapsed_cq, the worker polls the completion queue with ibv_poll_cq, whatever counts: a device writes completions
// beside every source, and a library frees the slots of its queues only when they are polled. The queue
// has an entry for each operation that can be outstanding, so it cannot overrun.
//
// We try the sources in this order. The first one offered by the device counts, and we keep the reasons
// against the earlier ones for the user:
//
//   - comp_cntr: the device's own counters. With libefa they count in the mirror's device segment
//     (comp_cntr+external), where readers load them; the published value follows.
//   - collapsed_cq: the single entry of an mlx5 device's completion queue, only if the configuration names
//     it. ibv_create_qp takes no such queue, so the queue pair is made by DevX, and nothing is polled
//     ([collapsedPair]). After an error the results of operations before it may be lost: they are in
//     neither value, with a discontinuity.
//   - cq_ring: an mlx5 device's entries, read in the ring beside ibv_poll_cq.
//   - poll_cq: the completions returned by ibv_poll_cq. The wr_id contains the kind of operation, because
//     the opcode of a completion in error is undefined.
//
// Operations of the peer (remote_*) leave no completion, so only comp_cntr can count them. When a source
// fails, ibv_poll_cq replaces it, with a discontinuity.
//
// # Totals
//
// A total continues the last total of the previous process, with a discontinuity. Losing the device is a
// discontinuity only for counters with outstanding operations, and for counters of the peer's operations:
// polled completions are always counted.
//
// # Connections
//
// A queue pair made again has another number. Set connects the queue pairs of the instance to each other
// again; other peers must be told the number ([Set.Connect]). A queue pair in state ERR stays there until
// somebody connects it anew. It then passes through RESET, and keeps its number and its counters. If
// connecting fails half-way, the old connection cannot be restored, and a condition names the reason.
package queuepair
