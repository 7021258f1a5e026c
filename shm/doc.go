// Package shm is the mirror: a file on tmpfs through which one writer shows the
// values of its counters to any number of processes, which map it read-only and
// read without a system call, a lock or an allocation.
//
// The format is specified in docs/mirror-format.md; layout.go holds its
// offsets. In short: a header, a history ring, then segments of 4096 counters: a
// catalogue entry for each (name, labels, source, flags), and either blocks of 64 counters
// with one sequence word and two copies each, or 64-byte two-slot records for
// latency-critical counters. What devices write is in a file of its own.
//
// # What a reader may rely on
//
//   - A value is a consistent triple (packets, bytes, sampled-at), whatever the
//     writer does, kill -9 included: the copy that readers read is never
//     written, the other one is, and the sequence word swaps them.
//   - Nothing that the writer does or fails to do can block, hang or crash a
//     reader: retries are bounded ([ErrBusy]), every offset is a constant or a
//     multiplication, checked against the size of the file before it is mapped, and
//     no word of the file is followed afterwards.
//   - A [Handle] names one counter for ever. A freed slot that is reused is
//     never taken for the old counter: reads return [ErrGone].
//   - A [Snapshot] says of what poll cycle its values are, or how far apart in
//     time.
//   - A [Cursor] of the history says exactly how many records it missed.
//   - A full mirror grows in place, by a segment: nothing moves, no handle changes, and
//     a reader maps the segment when it first meets a counter in it.
//   - A file that was given up for ever says so: [ErrStale].
//
// Times are nanoseconds of CLOCK_MONOTONIC ([Now]); a sampled-at of 0 means
// never sampled: absent, not zero.
//
// # Words that a device writes
//
// A device that counts completions by itself may write the count to memory.
// That memory is a [DeviceSegment], the file NAME.device beside the mirror, and
// a [Device] reads the words where the device wrote them, with no poller in
// between: two totals, extended over however many times the words came round.
// The two are no pair and have no sample time. The words never move while their
// writer lives; when the
// writer is another one, or the words serve another counter, it says so
// ([ErrNoDevice]) and never shows another counter's. The writer owes them one
// thing: [DeviceSlot.Rebase], long before a word has come round. The counter's
// ordinary value is published as ever, for whoever wants a sample time, a
// snapshot or a history.
//
// # Waiting
//
// [Reader.Wait] sleeps until a counter has reached a count, [Reader.WaitChange]
// until it has moved. A waiter sleeps on a futex in the file NAME.wait, which only the
// writer may write to and only a group may read ([Options]). The writer wakes after its
// cycle, without knowing who sleeps: 16 sleepers itself, the others from a goroutine of
// its own. A process that may not read the file looks once per cycle, and
// [Reader.Wakeable] says so. docs/waiting.md specifies the file.
//
// # Who may call what, from where
//
// Reader: any goroutine. A Counter, a Snapshot or a Cursor belongs to one
// goroutine at a time; a Counter may be copied. What a Reader handed out stays readable
// after Close, which only ends lookups: the mapping lives as long as anything
// refers to it.
//
// A Device may be used by any number of goroutines. A Wait that sleeps takes a
// thread, as any blocking system call does.
//
// Writer: control methods (Add, Remove, Set…, Entries, Last, Heartbeat,
// Close, GiveUp, those of a DeviceSegment, DeviceSlot.Free) from any goroutine.
// BeginCycle to EndCycle is one critical section of one goroutine: PublishBlock,
// PublishRecord and AppendHistory belong inside it, and no control method may be
// called from inside it, because those wait until the cycle ends.
// DeviceSlot.Rebase may be called from anywhere. Readers never wait.
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
