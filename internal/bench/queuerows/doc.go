// Package queuerows holds the row of the bench that is about counting the completions of a queue pair of one's own.
//
//   - queue.collapsed: 64 completions of a send queue counted from the single entry of a collapsed completion queue
//     (flexio.Collapsed.SampleUpTo), which has the index of the last. Against a walk over 64 entries of an ordinary ring
//     (flexio.Ring.Next), as source cq_ring makes it. Neither side has a device: a store of the index stands for it on
//     one side, and the entries of the other were written before. ibv_poll_cq reads each entry, too, and
//     TestKernelCostOfCountingCompletions of package ibv prints its time over a real libmlx5.
package queuerows
