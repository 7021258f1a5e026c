// Package flexio knows the structures that mlx5 devices and Flex IO programs share
// with memory: completion and event queue entries and the segments of work queue
// entries, after reference 004 (DOCA Flex IO SDK, API 3.0.0, "Data Structures"). It
// makes no system call and needs no device; what a device does with the structures
// is not in it.
//
// # Structures
//
// [Decode] and [Append] turn bytes of queue memory into a [Struct] and back, bit
// for bit, reserved fields included. A field carries the reference's name in its tag `ref`.
// All are big-endian. Where infiniband/mlx5dv.h of rdma-core has the same structure, a test
// compares every offset with it; the reference and the header disagree in
// names and in what is reserved, never in places. docs/flexio.md lists all fields and the disagreements.
//
// The structures called *_attr are arguments of the SDK's host library: the reference
// gives them fields and units, and no layout.
package flexio
