// Package flexio has the structures that mlx5 devices and Flex IO programs exchange in memory:
// completion and event queue entries, the segments of work queue entries, and the attributes of new
// queues. They are those of the DOCA Flex IO SDK, API 3.0.0, "Data Structures" (reference 004). The
// package makes no system call and needs no device: the caller passes the memory.
//
// # Structures
//
// [Decode] and [Append] turn bytes of queue memory into a [Struct] and back, bit for bit, reserved
// fields included. A field carries the reference's name in its tag `ref`. All are big-endian. If
// infiniband/mlx5dv.h of rdma-core has the same structure, a test compares every offset with it.
// The reference and the header differ in names and in reserved fields. docs/flexio.md lists all
// fields and the differences, among them impossible places of the reference.
//
// # Attributes
//
// The structures called *_attr, and some others, are arguments of the SDK's host library: the
// reference gives them fields, units and rules, and no layout. Here they are types whose Validate
// reports every invalid attribute, each as an [AttrError] with the reference's name. The package
// claims no ABI and calls no library. Pointers to objects of the library are [Object]s, ints that
// are flags are bools.
//
// [CQAttr.CreateCQ] makes the device's command CREATE_CQ, whose [CQContext] has the bits of
// mlx5_ifc_cqc_bits.
//
// # Counting completions
//
// Two readers count in memory that a device writes by DMA at the same time:
//
//   - [Ring] walks an ordinary completion queue as its consumer, compressed entries too.
//   - [Collapsed] reads the one entry of a queue made with cc=1 and oi=1, whose index
//     counts the completions, 16 bits at a time.
//
// [RingCounter] and [CollapsedCounter] add what they read to words that another program reads.
//
// # Memory
//
// The memory is the caller's. It begins at a multiple of 64 bytes, and stays mapped as long as the
// reader is used; readers need no Close. Each reader belongs to one goroutine at a time.
//
// A device writes the last word of an entry last. A reader loads that word first, with acquire
// order, on every architecture, so it never sees a new word beside old bytes. No call waits or
// enters the kernel, and calls allocate only to report an error.
package flexio
