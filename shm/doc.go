// Package shm is the mirror: a file on tmpfs through which one [Writer] shows the values of its
// counters to any number of processes. A [Reader] maps it read-only, and reads without a system
// call, a lock or an allocation. docs/mirror-format.md specifies the file, layout.go holds its offsets.
//
// # The file
//
// A header, a history ring, then segments. A segment holds the catalogue entries of 4096 counters,
// and either their values in blocks of 64 or a record for each latency-critical counter. A
// full mirror grows in place by a segment: nothing moves, and no [Handle] changes.
//
// # Values
//
// A [Value] is of one instant, even if the writer is killed while it publishes: the writer fills
// the copy that is not current, then the sequence word swaps the two. Times are nanoseconds of
// CLOCK_MONOTONIC ([Now]); a SampledAt of 0 means absent, not zero. A [Snapshot] knows its poll
// cycle, and a [Cursor] of the history counts the records that it missed. No writer blocks a
// reader ([ErrBusy]). A slot that is used again is never taken for the old counter ([ErrGone]).
// [Guard] turns the fault of a file that was cut short into [ErrTruncated].
//
// # Following
//
// A mirror that was removed, replaced, cut short or overwritten is made anew under its name
// ([Writer.Remake]). The writer marks the old file if it can, and its readers get [ErrStale]. An
// [Instance] opens the next file by itself, and its [NamedCounter] goes on there. It looks twice in a
// heartbeat period, and at least once a second.
//
// # Waiting
//
// [NamedCounter.Wait] and [Reader.Wait] sleep until a counter has reached a count, and take a
// thread meanwhile. The writer wakes them after its cycle through the file NAME.wait
// (docs/mirror-format.md, section 9); a process that may not read that file looks once per cycle.
//
// # Device words
//
// A [Device] reads two totals where a device writes them, in the file NAME.device, with no poller in
// between (docs/mirror-format.md, section 10). The two have no common instant.
//
// # Goroutines
//
// Methods of Reader, Instance and Device may be called from any goroutine. A Counter, NamedCounter,
// Snapshot or Cursor belongs to one goroutine at a time. The values that a Reader returned stay
// readable after Close.
//
// PublishBlock, PublishRecord and AppendHistory belong between BeginCycle and EndCycle, in one
// goroutine. It may call [DeviceSlot.Rebase] there. All other methods that change the mirror wait for
// EndCycle.
//
// Section 13 of docs/mirror-format.md explains the order of loads and stores.
package shm
