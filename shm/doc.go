// Package shm is the mirror: a file on tmpfs through which one writer shows the
// values of its counters to any number of processes, which map it read-only and
// read without a system call, a lock or an allocation.
//
// The format is specified in docs/mirror-format.md; layout.go holds its
// offsets. In short: a header page, a catalogue with one entry per counter
// (name, labels, source, flags), blocks of 64 counters with one sequence word
// and two copies each, 64-byte two-slot records for
// latency-critical counters, and a history ring.
//
// # What a reader may rely on
//
//   - A value is a consistent triple (packets, bytes, sampled-at), whatever the
//     writer does, kill -9 included: the copy that readers read is never
//     written, the other one is, and the sequence word swaps them.
//   - Nothing that the writer does or fails to do can block, hang or crash a
//     reader: retries are bounded ([ErrBusy]), offsets are checked once, at
//     attach, against the size of the file, and no word of the file is followed
//     afterwards.
//   - A [Handle] names one counter for ever. A freed slot that is reused is
//     never taken for the old counter: reads answer [ErrGone].
//   - A [Snapshot] says of what poll cycle its values are, or how far apart in
//     time.
//   - A [Cursor] of the history says exactly how many records it missed.
//
// Times are nanoseconds of CLOCK_MONOTONIC ([Now]); a sampled-at of 0 means
// never sampled: absent, not zero.
//
// # Who may call what, from where
//
// Reader: any goroutine. A Counter, a Snapshot or a Cursor belongs to one
// goroutine at a time; a Counter may be copied. What a Reader handed out stays readable
// after Close, which only ends lookups: the mapping lives as long as anything
// refers to it.
//
// Writer: control methods (Add, Remove, Set…, Entries, Last, Heartbeat, Close)
// from any goroutine. BeginCycle to EndCycle is one critical section of one
// goroutine: PublishBlock, PublishRecord and AppendHistory belong inside it, and
// no control method may be called from inside it, because those wait until the
// cycle ends. Readers never wait.
//
// # Memory order
//
// Publishing is: store fence, plain stores into the idle copy, store-release of
// the sequence word. The fence stands before the stores because a
// store-release does not hold back what comes after it: without the fence an
// arm64 core may write into the copy that is still current for other cores.
// Reading is: load-acquire, loads, load fence, load. On amd64 all of these are
// plain MOVs. Builds with -race and other architectures use an atomic operation
// per word instead, and take the region from the heap in tests, because the race
// detector does not see mapped memory.
package shm
