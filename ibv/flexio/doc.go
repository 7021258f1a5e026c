// Package flexio knows the structures that mlx5 devices and Flex IO programs share
// with memory: completion and event queue entries and the segments of work queue
// entries, and the attributes that queues are created with, after reference 004 (DOCA
// Flex IO SDK, API 3.0.0, "Data Structures"). It makes no system call and needs no device:
// memory is handed to it.
//
// # Structures
//
// [Decode] and [Append] turn bytes of queue memory into a [Struct] and back, bit
// for bit, reserved fields included. A field carries the reference's name in its tag
// `ref`. All are big-endian. Where infiniband/mlx5dv.h of rdma-core has the same
// structure, a test compares every offset with it; the reference and the header disagree
// in names and in what is reserved. docs/flexio.md lists all fields and the disagreements,
// among them the places of the reference that cannot be.
//
// # Attributes
//
// The structures called *_attr, and some others, are arguments of the SDK's host library: the
// reference gives them fields, units and rules, and no layout. Here they are types whose
// Validate reports every attribute that is wrong, each as an [AttrError] with the
// reference's name of it; no ABI is claimed and no library is called. Pointers to what the
// library owns are [Object]s, ints that are flags are bools.
//
// [CQAttr.CreateCQ] goes on to the device: it makes the command CREATE_CQ, whose
// [CQContext] has the bits of mlx5_ifc_cqc_bits.
//
// # Counting completions
//
// Two readers of memory that a device writes by DMA meanwhile:
//
//   - [Ring] walks an ordinary completion queue as its consumer, compressed entries too.
//   - [Collapsed] reads the one entry of a queue made with cc=1 and oi=1, whose index
//     tells how many completions there were, 16 bits of it at a time.
//
// The memory is the caller's. It begins at a multiple of 64 bytes, and stays mapped as
// long as the reader is used; nothing is to be closed. Each reader belongs to one
// goroutine at a time. What a device writes last is loaded first, with acquire order, on
// every architecture; no call waits or enters the kernel, and none allocates but to report
// an error.
package flexio
