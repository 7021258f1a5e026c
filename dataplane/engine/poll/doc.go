// Package poll reads the counters of all sources once a poll cycle and publishes their totals in the mirror.
//
// A [Plan] knows, for each counter of the mirror, its source, its id there and its base: the
// total counted by earlier sources. A cycle reads every source, adds the bases and publishes
// whole blocks of 64 counters, all under one cycle number. A cycle allocates nothing, makes no
// call into the kernel and knows no names of counters.
//
// A [Poller] runs the cycles, at a fixed period or without pause on a core of its own.
//
// # Locks
//
// Plan.mu protects a plan. The poller's goroutine locks it for one cycle, other goroutines for one
// change of the plan, and nobody across a call that may sleep. Inside a cycle the writer's mutex is
// locked too, so the order is Plan.mu before shm.Writer. Readers of the mirror take no lock.
package poll
