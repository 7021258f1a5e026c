// Package queuepair makes the queue pairs of the configuration and counts their completions.
//
// A [Set] holds the queue pairs of an instance. Each queue pair has a worker, a goroutine with a device
// context, a protection domain, a completion queue and memory of its own, so that no queue pair can delay
// another. The worker makes these objects, polls the completion queue, posts the operations of
// [Set.Post], and makes the objects again when a lost device returns. Other goroutines hand it functions
// (queuePair.call) and events (queuePair.sendEvent).
//
// # Completion sources
//
// The worker polls the completion queue with ibv_poll_cq whatever counts, because no source keeps a device
// from writing completions, and a library frees the slots of its queues only there. The queue holds every
// operation that can be outstanding, so it cannot overrun. The first of these sources that the device has
// counts, and the reasons against those before it are kept:
//
//   - comp_cntr: the device's own counters. With libefa they count in the mirror's device segment
//     (comp_cntr+external), where readers load them; the published value follows.
//   - collapsed_cq: always refused. Firmware makes such a queue by DevX alone, and ibv_create_qp cannot
//     use it. A program that drives DevX has flexio.Collapsed.
//   - cq_ring: the entries where an mlx5 device wrote them, read beside ibv_poll_cq.
//   - poll_cq: the completions of ibv_poll_cq. The wr_id holds the kind of operation, because
//     the opcode of a completion in error is undefined.
//
// Operations of the peer (remote_*) leave no completion: only comp_cntr counts them. A source that
// fails is replaced by ibv_poll_cq, with a discontinuity.
//
// # Totals
//
// A total goes on from the last total of the process before, with a discontinuity. A device that goes is a
// discontinuity of every counter whose operations were outstanding, or begin at the peer; completions
// that were polled are always counted.
//
// # Connections
//
// A queue pair that is made again has another number. Set connects the queue pairs of the
// instance again; other peers must be told ([Set.Connect]). A queue pair in state ERR stays there until
// it is connected anew, by way of RESET, with the same number and counters. A connection that fails
// half-way cannot be restored: a condition names the reason.
package queuepair
