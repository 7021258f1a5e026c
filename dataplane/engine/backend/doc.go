// Package backend defines the interface between the engine and its backends, which count flows.
//
// # Words
//
// Four words have one meaning in all packages below dataplane/engine:
//
//   - A counter is an entry of the mirror: a name, a total, and the time of its last sample.
//   - A source is the backend, device and mode that feed a counter now ([dataplane.Source]). The total of a counter is
//     the value of its source plus a base, the sum of earlier sources.
//   - A slot is where a source counts: an element of a BPF map, a hardware counter, the totals of a queue pair's
//     operations. An ID names a slot of its backend in [Counters.Read].
//   - A sample is the value of a slot ([Pair]) and the time at which it was read.
//
// # Hardware and software
//
// A [HardwareBackend] works in front of a [SoftwareBackend]. A flow counted by devices is offloaded. Its rules and its
// slot in the software backend are its shadow, and the engine publishes the shadow's slot when the devices are lost. As
// long as the shadow sees every packet of the flow, the flow's total is also the value of the shadow's slot plus a
// shadow base.
//
// # Rules for implementations
//
// The engine serializes Install, Remove, RemoveStale, Close, and the methods of HardwareBackend and SoftwareBackend that
// change something. Read may run at the same time as any of them. It is on the path of a count, so it must not allocate,
// make a system call, or take a lock that somebody holds during one.
package backend
