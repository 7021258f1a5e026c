// Package flexio has the structures that mlx5 devices and Flex IO programs exchange in memory:
// completion and event queue entries, the segments of work queue entries, and the attributes of new
// queues. They are those of the DOCA Flex IO SDK, API 3.0.0, "Data Structures" (reference 004). The
// package makes no system call and needs no device: the caller passes the memory.
//
// # Structures
//
// Each structure is a table of its fields: name, first bit, width, unit, and the place in the words of
// the reference. [Decode] and [Append] convert between bytes of queue memory and [Values] by the table,
// bit for bit, reserved fields included. All words are big-endian. Structures and fields have the names
// of the reference, for example "flexio_dev_wqe_ctrl_seg". If infiniband/mlx5dv.h of rdma-core has the
// same structure, a test compares every offset with it. The reference and the header differ in names and
// in reserved fields, and some places in the reference are impossible. docs/flexio.md lists all fields
// and differences.
//
// [CQE64] is the one structure with a type of its own, because readers of rings decode it for each
// completion.
//
// # Attributes
//
// The structures called *_attr, and some others, are arguments of the SDK's host library. The
// reference gives their fields, units and rules, but no layout. So this package claims no ABI for them,
// and calls no library. [Validate] reports every invalid attribute as an [AttrError] with the
// reference's name.
//
// [CreateCQ] makes the device's command CREATE_CQ from the attributes of a completion queue. Its context
// has the bits of mlx5_ifc_cqc_bits. Package ibv sends this command for collapsed queues and their rings.
//
// # Counting completions
//
// Two readers count in memory that a device writes by DMA at the same time:
//
//   - [Ring] walks an ordinary completion queue as its consumer, and expands compressed entries.
//   - [Collapsed] reads the single entry of a queue made with cc=1 and oi=1. Its index of 16 bits
//     tells the number of completions, modulo 65,536.
//
// [RingCounter] and [CollapsedCounter] add the completions to words read by another program.
//
// # Memory
//
// Callers provide the memory. It must begin at a multiple of 64 bytes, and stay mapped as long as the
// reader is used. Readers need no Close. Only one goroutine at a time may use a reader.
//
// A device writes the last word of an entry last. A reader loads this word first, with acquire
// order on every architecture, so it never sees a new word beside old bytes. No call blocks or
// enters the kernel, and calls of readers allocate only to report an error.
package flexio
