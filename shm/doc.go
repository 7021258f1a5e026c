// Package shm is the mirror: a file on tmpfs through which one writer shows the
// values of its counters to any number of processes, which map it read-only and
// read without a system call, a lock or an allocation.
//
// docs/mirror-format.md specifies the format: a header, a history ring, then segments
// of 4096 counters. A segment has a catalogue entry for each counter, and either blocks
// of 64 counters or, for latency, a record for each.
//
// # What a reader may rely on
//
//   - A value is a consistent triple (packets, bytes, sampled-at), whatever the
//     writer does, kill -9 included.
//   - Nothing that the writer does or fails to do can block, hang or crash a
//     reader: retries are bounded ([ErrBusy]), and every offset is checked.
//   - A [Handle] names one counter for ever. A freed slot that is reused is
//     never taken for the old counter: reads return [ErrGone].
//   - A [Snapshot] says of what poll cycle its values are, or how far apart in
//     time. A [Cursor] of the history says exactly how many records it missed.
//   - A full mirror grows in place, by a segment: nothing moves, no handle changes.
//   - A file that was given up for ever says so: [ErrStale]. An [Instance] follows.
//
// Times are nanoseconds of CLOCK_MONOTONIC ([Now]); a sampled-at of 0 means
// never sampled: absent, not zero.
//
// Two files stand beside the mirror. NAME.wait has the futex on which [Reader.Wait]
// sleeps (docs/waiting.md). NAME.device has the words in which a device counts by itself:
// a [DeviceSegment] to the writer, a [Device] to a reader (docs/device-words.md).
//
// # Who may call what, from where
//
// Reader: any goroutine. A Counter, a Snapshot or a Cursor belongs to one
// goroutine at a time; a Counter may be copied. What a Reader handed out stays readable
// after Close, which only ends lookups: the mapping lives as long as anything
// refers to it. A Device may be used by any number of goroutines. A Wait that sleeps
// takes a thread.
//
// Writer: control methods (Add, Remove, Set…, Entries, Last, Heartbeat,
// Close, GiveUp, those of a DeviceSegment, DeviceSlot.Free) from any goroutine.
// BeginCycle to EndCycle is one critical section of one goroutine: PublishBlock,
// PublishRecord and AppendHistory belong inside it, and no control method may be
// called from inside it, because those wait until the cycle ends.
// DeviceSlot.Rebase may be called from anywhere. Readers never wait.
//
// docs/memory-order.md says which fences order all this, and why.
package shm
