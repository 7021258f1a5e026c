// Package ibv is a binding of libibverbs: devices, protection domains, completion queues, queue
// pairs, memory regions, work requests, flows, counters and completion counters.
//
// [Load] opens the library, [Library.Devices] lists the devices and [Library.Open] opens one. A
// method of its parent makes every other object: [Context.AllocPD], [PD.CreateQP],
// [QP.CreateFlow]. [Probe] tells by trying what a device can do.
//
// # Names and sources
//
// Types, fields and constants carry the names of infiniband/verbs.h and have its values: struct
// ibv_qp_attr is [QPAttr], IBV_QPS_RTS is [QPSRTS], ibv_poll_cq is [CQ.Poll]. The manual pages of
// rdma-core define them. A docstring adds what those pages leave out: units, byte order, and which
// driver does what. Numbers are in host order, lengths in bytes.
//
// [DevX] and what it makes are of libmlx5 (mlx5dv.h), as is what begins with MLX5; their layouts are
// the firmware's (mlx5_ifc.h). What begins with EFA is of libefa (efadv.h).
//
// # The library
//
// A build needs no libibverbs. Load opens the library with dlopen and looks its symbols up,
// IBVERBS_1.1 first. A symbol that an older library lacks is a verb that returns "not supported".
// The flow and counter verbs have no symbols: they are called through struct verbs_context, after
// a check of its size, as the inline functions of verbs.h do. Our own header declares the types,
// and a test compares it with the distribution's headers. Without cgo, and on other systems, Load
// returns a [probe.UnsupportedError].
//
// # Lifetimes
//
// Every object has one owner, who calls Close. An object holds its parents: a [Flow] its [QP] and
// [Counters]; a QP its [PD], the [CQ] of each queue, and every attached [CompCntr]; an [MR] and an
// [AH] their PD. Everything holds the [Context], and the Context the [Library].
//
// Close of a held object returns [ErrBusy] with the names of the holders, and changes nothing. A
// second Close returns nil. Any other call on a closed object returns [ErrClosed]. Close waits for
// running calls of the same object.
//
// A device that is gone may refuse to destroy an object. Close then returns the error, the object
// is closed for the caller all the same, and closing the Context frees its kernel resources. EBUSY
// alone leaves the object open.
//
// A posted request holds no object: wait for its completion before closing an MR or an AH that it
// names.
//
// A device never writes to the Go heap. [PD.AllocMR] maps memory for the region. The memory of
// [PD.RegMR] and of [CompCntrMemory] is a mapping of the caller's, which outlives the object.
//
// # Concurrency
//
// All methods may be called from any goroutine. A verb is a C call: it blocks an OS thread for as
// long as the kernel and the firmware take, and cannot be cancelled. Only [Context.NextEvent] and
// [AsyncQueries.Next] wait without a thread, and end with their context.
//
// # Errors
//
// A refused verb returns an [*Error] with verb, device and errno. It satisfies errors.Is for the
// errno, for this package's sentinels, and for probe.ErrNotSupported if the errno means that the
// device does not offer the verb.
//
// # Counting
//
// [Counters] count the packets of flows, [CompCntr] the completions of queue pairs, and
// [FlowCounters] the packets of mlx5 rules that need no queue pair ([Context.DevX]).
package ibv
