// Package ibvtest builds a uverbs kernel in software, for tests and demonstrations of RDMA on machines without an RDMA
// NIC. It is preloaded below the real libraries of rdma-core ([BuildKernel], docs/testing.md).
//
// It also builds a shim, which a test names in place of one of these libraries, for what no kernel can cause: verbs that
// fail without a call to the kernel, and verbs of a later release.
//
// All are written in C. [Build] compiles them with gcc from the embedded sources (src), and needs no header of
// rdma-core.
//
// # The software NIC
//
// A device is a netdev. Flows match the real packets of that netdev: a packet socket reads
// copies of them, so a packet counts as its wire segments, in bytes of layer 2 without FCS
// (src/nic.h). Queue pairs move data between queue pairs of one kernel. docs/testing.md
// describes both, the errnos, and the differences from a real NIC.
//
// # Faults
//
// [Env] has every fault. Items of its lists may name a device ("mlx5_0/flows"). The kernel reads its
// environment whenever libibverbs lists the devices and none is open. It counts every call of a method and every firmware
// command, and the shim every call of its verbs, whatever they will return: see [Statistics].
//
// After [Control] removes a device, it behaves as in the kernel. Its contexts get
// IBV_EVENT_DEVICE_FATAL, and every command fails with EIO for ever, also those that destroy objects.
// Closing a context frees its remaining objects. Posting, ibv_poll_cq and the reads of completion counters are
// no commands: libmlx5 and libefa use memory, which keeps its last values. When the device
// has returned, programs can open it again. If a netdev disappears, its device is removed in the same
// way, at the next read.
package ibvtest
