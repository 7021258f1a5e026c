// Package ibv is a binding of libibverbs: devices, protection domains, completion queues, queue
// pairs, memory regions, work requests, flows, counters and completion counters.
//
// [Load] opens the library, [Library.Devices] lists the devices and [Library.Open] opens one. A
// method of its parent makes every other object: [Context.AllocPD], [PD.CreateQP],
// [QP.CreateFlow]. [Probe] finds out by trying what a device can do.
//
// # Names and sources
//
// Types, fields and constants carry the names of infiniband/verbs.h and have its values: struct
// ibv_qp_attr is [QPAttr], IBV_QPS_RTS is [QPSRTS], ibv_poll_cq is [CQ.Poll]. The manual pages of
// rdma-core define them. Our comments add what those pages leave out: units, byte order, and
// differences between drivers. Numbers are in host order, lengths in bytes.
//
// [DevX], the objects made from it, and all names with the prefix MLX5 come from libmlx5
// (mlx5dv.h). Their layouts are the firmware's (mlx5_ifc.h). Names with the prefix EFA come from
// libefa (efadv.h).
//
// # The library
//
// A build needs no libibverbs. Load opens the library with dlopen and looks up its symbols,
// IBVERBS_1.1 first. If an older library lacks a symbol, the verb returns "not supported". The flow
// and counter verbs have no symbols. We call them through struct verbs_context after checking its
// size, as the inline functions of verbs.h do. The types are declared by a header of our own, which
// a test compares with the distribution's headers. Without cgo, and on other systems, Load returns
// a [probe.UnsupportedError].
//
// # Lifetimes
//
// Callers must close every object. An object holds its parents: a [Flow] holds its [QP] and
// [Counters]; a QP its [PD], the [CQ] of each queue, and every attached [CompCntr]; an [MR] and an
// [AH] their PD. Everything holds the [Context], and the Context holds the [Library].
//
// Closing a held object changes nothing and returns [ErrBusy] with the names of the holders.
// Otherwise Close waits for running calls of the object. A second Close returns nil. Any other call
// on a closed object returns [ErrClosed].
//
// A removed device may refuse to destroy an object. Close then returns the error, but the object is
// closed for the caller all the same, and closing the Context frees its kernel resources. Only EBUSY
// leaves the object open.
//
// A posted request holds no object. Wait for its completion before closing an MR or an AH named by
// it.
//
// A device never writes to the Go heap. [PD.AllocMR] maps memory for the region. For [PD.RegMR] and
// [CompCntrMemory], callers must pass a mapping of their own, and keep it until the object is closed.
//
// # Concurrency
//
// All methods may be called from any goroutine. A verb is a C call: it blocks an OS thread for as
// long as the kernel and the firmware take, and cannot be cancelled. Only [Context.NextEvent] and
// [AsyncQueries.Next] wait without a thread, and end with their context.
//
// # Errors
//
// A failed verb returns an [*Error] with verb, device and errno. errors.Is finds the errno and this
// package's sentinels in it, and also probe.ErrNotSupported if the errno means that the device does
// not offer the verb.
//
// # Counting
//
// [Counters] count the packets of flows, [CompCntr] the completions of queue pairs, and
// [FlowCounters] the packets of mlx5 rules that need no queue pair ([Context.DevX]). A [DevXQP] can
// complete its requests into a collapsed [DevXCQ], whose single entry has their number.
package ibv
