// Package engine is an instance: it places flows on backends, polls their counters and publishes the values in the
// mirror. It runs in the plugin's process, or embedded in a program that is privileged itself.
//
// docs/architecture.md has the drawing of the parts, the walks of a count and of a flow, the invariants of placement
// and the locks.
//
// # Parts
//
//   - [Engine]: the life cycle and the control calls (engine.go, control.go, flows.go, release.go).
//   - change, alterations: a change of the set of flows, its refusals, its undo and the losses that an undo declares
//     (setflows.go, alter.go, alter_shadows.go, alter_rules.go, alter_entries.go, refused.go, undone_losses.go).
//   - choices, placement: which backends a flow may go to, and its installation there (backends.go, choice.go,
//     place.go, room.go, remove.go, enable.go).
//   - stack: which flows hardware counts in place of XDP (offload.go, relate.go, denied.go). A flow that a device refuses goes to
//     XDP: arranger.arrange asks the stack again without it.
//   - arranger, mover: the moves between hardware and XDP, and the totals over them (arrange.go, arrange_steps.go,
//     move.go, handover.go, follow.go, flight.go, publish.go, divide.go, source.go).
//   - auditor: the comparison of hardware with XDP (audit.go).
//   - watcher, health, event.Broadcaster: conditions and events (watch.go, health.go, event).
//
// Packages below engine: backend has the interfaces, rdma and xdp the two backends, queuepair the completion counters,
// poll the plan and the poller, trial the test of devices in a process of its own. change has the plan of a change of
// the set, overlap the index of flows, catalogue the entries in the mirror and its file, live and words the sockets
// beside the mirror, control the lock of control calls, event the broadcaster, sim the simulated backend. model is the
// test that draws histories.
//
// # Rules
//
// A flow is counted by one backend at a time. A flow that hardware counts has rules and a slot in XDP too, its
// shadow. Hardware counts a flow only if it counts every overlapping flow that wins over it. So each packet is
// counted once, by the flow of the lowest (Priority, Order) that matches it.
//
// A total goes on over restarts, losses of devices and moves. Where packets may be missing or counted twice, the mirror
// has a discontinuity, and an event tells of it ([dataplane.Uncounted]).
//
// # Lifetime and locks
//
// [New] starts the instance, [Engine.Close] ends it. The methods of [dataplane.Service] may be called from any
// goroutine. Engine.ctl serialises the calls that change something; those that read wait for none, and find the set in
// force (inforce.go). A method returns within about 1 s of its cancellation, even if a device is slow; the call then ends
// in the background. It is undone, unless it was decided already: then it goes on ([dataplane.UnfinishedError]). The
// poller's lock is held for one cycle or one change, and never across a call into the kernel or a device.
package engine
