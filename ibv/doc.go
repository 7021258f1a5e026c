// Package ibv is a binding of libibverbs: devices, protection domains, completion
// queues, queue pairs, memory regions, work requests, flows, counters and completion
// counters. It knows verbs, not flow.Flow.
//
// # The library
//
// There is no dependency on libibverbs when this is built or linked. [Load] opens
// the library with dlopen and looks its symbols up, IBVERBS_1.1 first; a symbol that
// an older library lacks is a verb that answers "not supported". The flow and counter verbs
// are no symbols at all: they are called through struct verbs_context, after its
// size was compared, as the inline functions of verbs.h do. verbs_abi.h declares
// what is used, and a test compares it with the distribution's headers. Built without
// cgo, or for another system, the package is whole but for Load, which answers a
// [probe.UnsupportedError].
//
// # Lifetimes
//
// Every object has one owner, who calls its Close. Objects hold what they were made
// of: a [Flow] its [QP] and [Counters], a QP its [PD], its [CQ]s and the [CompCntr]s that were
// attached to it, an [MR] and an [AH] their PD, all of them the [Context], which
// holds the [Library]. Closing what something still holds answers [ErrBusy] with the names
// of what holds it, and changes nothing. A second Close answers nil; any other call
// on a closed object [ErrClosed]. Close waits for calls of the same object that
// are under way.
//
// A verb that destroys and fails leaves the object closed to the caller and abandoned to the
// library, as on a device that is gone; the error is returned. What an abandoned object still
// occupies in the kernel goes with the context. Only EBUSY leaves it open.
//
// Posted requests hold nothing: who closes an MR or an AH waits for the completions of those that
// name it first. Memory that a device writes by itself is never the Go heap's: that of
// [PD.AllocMR] is a mapping of the region's own, that of [PD.RegMR] and of [CompCntrMemory] is a
// mapping of the caller's, which outlives the object.
//
// # Who may call what
//
// All methods may be called from any goroutine. A verb is a C call: it blocks an OS
// thread for as long as the kernel and the firmware take, with no way to cut it
// short. [Context.NextEvent] and [AsyncQueries.Next] alone wait without a thread, and end
// with the context that they are given.
//
// # Errors
//
// What the library refuses is an [*Error] with the verb, the device and the errno. It
// satisfies errors.Is for the errno, for this package's sentinels, and for
// probe.ErrNotSupported where the errno says that the device does not offer the verb.
//
// # Flows that count
//
// Only a flow of type [FlowAttrNormal] counts: mlx5 drops the count action from the others
// without a word, so they are refused here. A plain one takes the packets away from
// the kernel; [FlowDontTrap] and [FlowEgress] do not. What a [Counters] reads is set up by Attach
// before the first flow names it, and summed per index over all of them.
//
// # Operations that count
//
// A [CompCntr] counts what completes on the queue pairs that it is attached to, without a
// look at their completion queues, which fill all the same. [Context.CreateCompCntr] with
// CompCntrMemory has an EFA device count in memory of the caller's, where any process that maps
// it reads the value by a load. The names are those of rdma-core 65; what an earlier
// draft called them is beside them. On a device without such counters the same number is had
// from [CQ.Poll], or on mlx5 from the ring itself ([CQ.MLX5Ring]). EFA's own type of queue
// pair, SRD, is none that this package makes: a UD one counts sends and receives.
//
// # DevX
//
// [Context.DevX] opens an mlx5 device for firmware commands, by libmlx5, which is loaded
// as libibverbs is. A [FlowCounters] is a bulk that one command reads; [AsyncQueries] takes
// the answers of commands that nobody waits for. A flow of a [Matcher] counts with
// DefaultMiss: it needs no queue pair and takes no packet, the first match ends the
// search, and the kernel gets the packet. Counters begin at 0 and keep their values when
// flows end. What octets count (FCS, tags) no public source says.
package ibv
