// Package ibvtest builds a uverbs kernel in software, for tests and demonstrations of RDMA on machines without an RDMA
// NIC. It is preloaded below the real libraries of rdma-core ([BuildKernel], docs/testing.md).
//
// It also builds a software libibverbs.so.1, libmlx5.so.1 and libefa.so.1, for what the real libraries of a host cannot
// do: symbols that they have or lack, and verbs that fail without a call to the kernel.
//
// All are written in C. [Build] compiles them with gcc from the embedded sources (src), and needs no header of
// rdma-core. The libraries have only the public ABI, and programs load them by path instead of rdma-core's. The
// libibverbs contains the uverbs kernel, and all three libraries use its flows, counters and DevX.
//
// There are two builds of libibverbs: with the symbols of rdma-core 65 (IBVERBS_1.18, completion
// counters), and with those of rdma-core 44. There are three builds of libmlx5, like rdma-core 65, 44
// and 61.0, because each of these reads the actions of a flow in another way.
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
// [Env] has every fault. Items of its lists may name a device ("swnic0/flows"). The library reads its
// environment at every ibv_get_device_list. If a list did not change, the numbering of its calls
// continues. The library first counts every call of a verb, whatever it will return, and every
// firmware command of libmlx5 by its PRM name: see [Statistics].
//
// After [Control] removes a device, it behaves as in the kernel. Its contexts get
// IBV_EVENT_DEVICE_FATAL, and every command fails with EIO for ever, also those that destroy objects.
// Closing a context frees its remaining objects. ibv_poll_cq and the reads of completion counters are
// no commands. As in libmlx5 and libefa they read memory, which keeps its last values. When the device
// has returned, programs can open it again. If a netdev disappears, its device is removed in the same
// way, at the next read.
package ibvtest
