// Package readrows holds the rows of the bench that compare reading the mirror with reading what programs would use in its
// place. One operation reads 4,096 counters, once, while no writer writes. docs/performance.md describes each row.
//
// Our side loads 4,096 counters by HandleCounter.Load: packets, bytes and the time of the sample, of one instant. VPP has
// packets and bytes, and the other peers the packets alone, so they read less. Each side adds up the packets that it has
// read. A sum that differs from what was written ends the row.
//
//   - read.vs.prometheus.4k: Gather of client_golang's registry, in the process that counts.
//   - read.vs.prometheus.scrape.4k: the same as text by its handler for HTTP, without a socket between, and parsed by the
//     library that Prometheus offers for it. Collections of garbage are in no side.
//   - read.vs.aeron.4k, read.vs.aeron.ids.4k: the counters file of Aeron's media driver (cnc.dat, version 0.2.0), read by
//     its layout. A value has two cache lines of its own. Aeron's reader looks at the state of each counter in the
//     metadata. The second row leaves that out, as a program may that knows the numbers of its counters. Then a read is a
//     bare load, so the bound is that of shm.read.
//   - read.vs.govpp.4k: a statistics segment of VPP, version 2, with packets and bytes of the counters, read by govpp in a
//     process of its own (../flowtally-bench-govpp; --peers). A program of the bench writes the segment and hands it out
//     as VPP does. govpp allocates what it returns; collections of garbage are not in its time.
package readrows
