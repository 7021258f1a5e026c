// Package ibv is a binding of libibverbs: devices, protection domains, completion
// queues, queue pairs, memory regions, work requests, flows, counters and completion
// counters. It knows verbs, not flow.Flow.
//
// # The library
//
// A build needs no libibverbs. [Load] opens the library with dlopen and looks its symbols
// up, IBVERBS_1.1 first. A symbol that an older library lacks is a verb that returns "not
// supported". The flow and counter verbs are called through struct verbs_context, after
// its size was compared, as the inline functions of verbs.h do. verbs_abi.h declares the
// types, and a test compares it with the distribution's headers. Without cgo, and on other
// systems, Load returns a [probe.UnsupportedError].
//
// # Lifetimes
//
// Every object has one owner, which calls Close. An object holds its parents: a [Flow] its
// [QP] and [Counters], a QP its [PD], its [CQ]s and the attached [CompCntr]s, an [MR] and
// an [AH] their PD, all of them the [Context], and it the [Library]. Close of a held
// object returns [ErrBusy] with the names of the holders, and changes nothing. A second
// Close returns nil. Any other call on a closed object returns [ErrClosed]. Close waits for
// running calls of the same object.
//
// If destroying fails, as on a device that is gone, Close returns the error, the object is
// closed for the caller, and closing the context frees its kernel resources. Only EBUSY
// leaves the object open.
//
// A posted request holds no object: wait for the completions of the requests that name an MR
// or an AH before closing it. A device never writes to the Go heap. [PD.AllocMR] maps memory
// for the region. The memory of [PD.RegMR] and of [CompCntrMemory] is a mapping of the
// caller's, which outlives the object.
//
// # Concurrency
//
// All methods may be called from any goroutine. A verb is a C call: it blocks an OS thread
// for as long as the kernel and the firmware take, and cannot be cancelled. Only
// [Context.NextEvent] and [AsyncQueries.Next] wait without a thread, and end with their
// context.
//
// # Errors
//
// A refused verb returns an [*Error] with verb, device and errno. It
// satisfies errors.Is for the errno, for this package's sentinels, and for
// probe.ErrNotSupported if the errno means that the device does not offer the verb.
//
// # Counting
//
// [Counters] count the packets of flows, [CompCntr] the completions of queue pairs, and
// [FlowCounters] the packets of mlx5 rules that need no queue pair ([Context.DevX]).
package ibv
