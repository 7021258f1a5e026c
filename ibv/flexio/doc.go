// Package flexio has the structures that mlx5 devices and Flex IO programs exchange in memory:
// completion and event queue entries, the segments of work queue entries, and the attributes of new
// queues. They are those of the DOCA Flex IO SDK, API 3.0.0, "Data Structures" (reference 004). The
// package makes no system call and needs no device: the caller passes the memory.
//
// # Structures
//
// [Decode] and [Append] convert between bytes of queue memory and a [Struct], bit for bit, reserved
// fields included. All fields are big-endian, and have the reference's name in their tag `ref`. If
// infiniband/mlx5dv.h of rdma-core has the same structure, a test compares every offset with it.
// The reference and the header differ in names and in reserved fields, and some places in the
// reference are impossible. docs/flexio.md lists all fields and differences.
//
// # Attributes
//
// The structures called *_attr, and some others, are arguments of the SDK's host library. The
// reference gives their fields, units and rules, but no layout. So these types claim no ABI, and
// the package calls no library. Validate reports every invalid attribute as an [AttrError] with the
// reference's name. A pointer to an object of the library is an [Object] here, and an int used as a
// flag is a bool.
//
// [CQAttr.CreateCQ] makes the device's command CREATE_CQ, whose [CQContext] has the bits of
// mlx5_ifc_cqc_bits.
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
// enters the kernel, and calls allocate only to report an error.
package flexio
