// Package ibvtest builds a software libibverbs.so.1, libmlx5.so.1 and libefa.so.1, for tests
// and demonstrations that need an RDMA NIC, on machines without one.
//
// The libraries are C. Build compiles them with gcc from the sources that are embedded here
// (src); no header of rdma-core is needed. They have only the public ABI: a program loads them
// by path in place of rdma-core's. Their libibverbs contains the uverbs kernel in software
// (docs/testing.md), whose flows, counters and DevX they use. There are two builds of
// libibverbs: one with the symbols of rdma-core 65 (IBVERBS_1.18, completion counters) and one
// with the symbols of rdma-core 44, without them.
// There are three builds of libmlx5, as rdma-core 65, 44 and 61.0, which read the actions of
// a flow in different ways.
//
// # The software NIC
//
// A device is a netdev of the network namespace of the thread that calls
// ibv_get_device_list. Flows match the real packets of that netdev: a packet socket reads
// copies of them, so a packet counts as its wire segments, in bytes of layer 2 without FCS
// (src/nic.h). Queue pairs move data between queue pairs of one process. docs/testing.md
// describes both, the errnos, and the differences from a real NIC.
//
// # Faults
//
// Env has every fault. Items of its lists may name a device ("swnic0/flows"). The library
// reads its environment at every ibv_get_device_list. A list that did not change goes on with
// the numbering of its calls. Every call of a verb is counted first, whatever it returns, and
// so is every firmware command of libmlx5, by its PRM name: see Statistics.
//
// A device that Control takes away is gone as in the kernel: its contexts get
// IBV_EVENT_DEVICE_FATAL and return EIO for every command for ever, destroying ones included.
// Closing such a context releases its remaining objects. ibv_poll_cq and the reads of
// completion counters are no commands: as in libmlx5 and libefa they read memory, which keeps
// its last values. The device can be opened again when it has returned. A netdev that
// disappears takes its device with it in the same way, at the next read.
package ibvtest
