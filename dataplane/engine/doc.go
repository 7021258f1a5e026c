// Package engine is the instance itself: it places flows on backends, polls
// their counters and publishes them in the mirror. It runs in the plugin's
// process, or embedded in any program that is privileged itself.
//
// # A count
//
// The poller reads every counter once a cycle ([Backend.Read]), adds the base
// that the counter carries over from earlier sources, and publishes whole
// blocks through shm.Writer. That path takes one lock that no reader holds,
// allocates nothing and knows no name. What a device counts is sampled by a goroutine
// of the backend, one command after the other; the poller copies the last sample and
// its time, and never shows one that lies before what is shown.
//
// # A flow
//
// Engine.AddFlows validates, asks the backends in order and keeps each refusal, finds
// or makes the counter's entry in the mirror, then settles the continuity of the
// total: an entry whose cookie still names the counter that the backend gave goes on from
// its base; any other goes on from the last published total, with one discontinuity.
//
// # Hardware over XDP
//
// Hardware is an overlay: XDP's tables hold every flow of the instance, in their order,
// and hardware counts some of them in XDP's place. What the tables hold of a flow, rules that
// win its match and a counter, is its shadow; while hardware counts the flow, nobody publishes
// it. XDP's hooks are taken only on interfaces and sides where a flow is published from
// there, or audited.
//
// One packet p, of one interface and side; f is the flow that internal/linear names for it:
// of those that match p, the one of the lowest (Priority, Order). A flow is in hardware only
// if the device can match exactly what it says and every flow that wins over it and overlaps
// it is in hardware too (and, where matches fall through, only if there is none). So
//
//   - if f is in hardware, it counts p there, once: no flow before f matches p, and those behind f
//     that hardware has too are either not looked at any more (first match ends) or do not overlap f.
//     In XDP p finds the shadow of f, or never arrives, so nothing that is published counts it.
//   - if f is not in hardware, nothing there counts p: what matches p is behind f, overlaps
//     it, and so is not in hardware. XDP holds f and everything before it, and counts p by f.
//
// A flow whose shadow does not fit in the tables stays in hardware only as long as nothing that
// XDP publishes lies under it. flow.Overlap errs on the side of yes, which costs room and never a count.
//
// # Moves
//
// A set changes in an order that keeps this true at every instant: what must leave
// hardware leaves from the lowest up, then what displaced it is published, then
// what may enter does from the top. Between two instants packets may pass that both
// count, or neither; the total counts none twice:
//
//   - Into hardware: the total goes on from what the shadow stood at before hardware began.
//     If the shadow has counted since, one discontinuity.
//   - Out of hardware: the total goes on from hardware's last value, which is read to the end
//     unless the device is lost. What it lacks is declared in Event.Uncounted: exactly, if
//     the shadow saw every packet since hardware began (its hook was held all the time,
//     for another flow); else as unknown. One discontinuity.
//   - With audit the shadow always sees every packet, and out of hardware the total goes on as it has it:
//     nothing lacks, and bytes of one basis are no discontinuity. What a total lacks since it went
//     into hardware under traffic is added as soon as nothing of it has passed for a moment (quietLeast),
//     or at the end of the instance; what hardware and XDP differ by later is the condition
//     rdma-audit-differs.
//
// A flow of several interfaces that loses one of its devices stays in hardware on the others (Engine.divide): of
// the proof above, what holds of one interface and side holds there. Its shadow counts on the interface of the
// lost device in a counter of its own, from the end of the device's count on, and Backend.Read of the overlay
// adds that to what the devices have. With audit such a flow moves whole, and its total stays exact.
//
// A device that was not there when the instance started is looked for like one that went, by the same
// look at the list. Until it comes there is no overlay, and flows are related to nothing; then
// what XDP counts of them is their shadow (Engine.enableOffload), and they move as they do at a return.
//
// A flow that only rdma may count waits where it is for its device, and has no source
// meanwhile; one whose device has never been there is refused. What hardware counted dies with the process. The total of the next one is that of
// the shadow, whose counter is pinned, where it saw everything: exact, but for a discontinuity
// if packets pass while hardware takes it up. Else it is the last published one, with one
// discontinuity. Which of both it is stands in the mirror: the cookie that an entry carries
// names the counter that knows its total.
//
// A hook that is lost and taken again under a flow that is published from there is
// one discontinuity too: what passed in between is not known.
//
// # Queue pairs
//
// The queue pairs of the configuration are not flows: the engine neither places nor moves them. Package queuepair
// makes and counts them; the engine gives their counters entries in the mirror and their slots to the poller.
//
// # Libraries that crash
//
// libibverbs and the libraries that it loads run in this process; their defects end it. So a device is tried out
// first in a process of its own (Options.Trial), once per start: it makes one of each object that the
// instance will use, names each verb in a page that it shares with this one (package verbpage), and has
// 5 s. A device whose trial dies or hangs is left alone, with the verb as the reason, and its flows are
// counted elsewhere. The answer is not stored. What passes its trial and crashes later is the
// supervisor's business (package plugin): Options.Calls and Options.Excluded are its two ends here.
//
// # Locks and goroutines
//
// Control methods (all of dataplane.Service) may be called from any goroutine
// and are serialised by Engine.ctl, but for those that wait for a queue pair, and those that look at
// what has a lock of its own (Info, Conditions, Events, QueuePairs); the watcher
// of conditions moves flows under it, too, and tries again rather than wait. A command of a device
// may take seconds, and cannot be called back. So flows are added and removed by a goroutine that holds
// ctl to the end (Engine.call), while its caller leaves when its context has ended; whether
// flows that were added stay is decided once, before anybody but a reader of the mirror hears of it
// (verdict). Close ends the adding of flows at its next command, lets a removal go on, and leaves both to that
// goroutine after CloseBound; who waits for their end hears at once that the instance is closed. The poller's
// goroutine and whoever changes what is polled meet at poll.Plan, held for one cycle or for
// one change of the plan, never across a call into the kernel or a device that may sleep. The
// mirror grows (shm.Writer.Add) before the plan is touched.
package engine
