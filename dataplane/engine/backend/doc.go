// Package backend holds the interface between the engine and the components that count, and their
// shared types.
//
// # Words
//
// Four words name things that count, in all packages below dataplane/engine:
//
//   - A counter is an entry of the mirror: a name, a total, and the time of its last sample.
//   - A source is the backend, device and mode that feed a counter now ([dataplane.Source]). The total of a counter
//     is a base, which earlier sources have left, and the value of its source.
//   - A slot is the place where a source counts: an element of a BPF map, a hardware counter, the totals of a queue
//     pair's operations. An ID names a slot of its backend in [Counters.Read].
//   - A sample is the value of a slot ([Pair]) with the time at which it was read.
//
// # Hardware and software
//
// A [HardwareBackend] lies over a [SoftwareBackend]: a flow that devices count is offloaded, and its rules and its
// slot in the software backend are its shadow. The engine publishes the shadow's slot when the devices are lost.
// While the shadow sees every packet of its flow, the total of an offloaded flow is its shadow base plus the value of the
// shadow's slot.
//
// # Rules for implementations
//
// Install, Remove, RemoveStale and Close, and the methods that an overlay adds, are serialised by the engine. Read may run
// at the same time as each of them. It is on the path of a count: it allocates nothing, makes no system call and
// takes no lock that is held over one.
package backend
