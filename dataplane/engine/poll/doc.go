// Package poll reads the counters of all sources once a poll cycle and publishes their totals in the mirror.
//
// A [Plan] holds, for each counter of the mirror, its source, its id there and its base: the
// total that the counter had reached under its earlier sources. A cycle reads every source,
// adds the bases and publishes whole blocks of 64 counters, all under one cycle number. It allocates
// nothing, makes no call into the kernel and knows no names of counters.
//
// A [Poller] runs the cycles, at a fixed period or without pause on a core of its own.
//
// # Locks
//
// The poller's goroutine and the goroutines that change a plan meet at Plan.mu. It is held for one
// cycle, or for one change of the plan, and never across a call that may sleep. A reader of the
// mirror takes no lock.
package poll
