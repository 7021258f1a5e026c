// Package shm is the mirror: a file on a tmpfs through which one [Writer] shows counter values to any
// number of processes. A [Reader] maps the file read-only and reads it without a system call, a lock or
// an allocation. docs/mirror-format.md specifies the file, and layout.go holds its offsets.
//
// # The file
//
// The file is a header, a history ring, and segments. A segment holds the catalogue entries of 4096
// counters and their values: in blocks of 64, or in one record for each latency counter. A full mirror
// grows in place by a segment. Nothing moves, and every [Handle] stays valid.
//
// # Values
//
// The three words of a [Value] belong to one instant, even if the writer is killed while it publishes:
// the writer fills the copy that is not current, then the sequence word swaps the two. Times are
// nanoseconds of CLOCK_MONOTONIC ([Now]). A SampledAt of 0 means absent, not zero.
//
// A [Snapshot] knows its poll cycle, and a [Cursor] of the history counts the records that it missed. No
// writer blocks a reader: a reader that cannot keep up returns [ErrBusy]. The handle of a removed counter
// returns [ErrGone], whatever counter uses its slot by then. [Guard] turns the memory fault of a file that
// was cut short into [ErrTruncated].
//
// # Following
//
// The writer makes a mirror anew under its name if the file was removed, replaced, cut short or
// overwritten ([Writer.Remake]). It marks the old file if it can, and readers of the old file get
// [ErrStale]. An [Instance] then opens the new file by itself, and its [Counter] goes on there. For a
// file that the writer could not mark, the Instance looks at the name twice in a heartbeat period, and at
// least once a second.
//
// # Waiting
//
// [Counter.Wait] and [Reader.Wait] sleep until a counter has reached a count. A sleeping Wait takes a
// thread. The writer wakes it after a poll cycle, through the file NAME.wait (docs/mirror-format.md). In a
// process that may not read this file, Wait looks once per cycle instead.
//
// # Device words
//
// A [Device] reads two totals where a device writes them, in the file NAME.device, with no poller in
// between (docs/mirror-format.md). The two totals have no common instant.
//
// # Goroutines
//
// Any goroutine may call the methods of Reader, Instance and Device. A Counter, HandleCounter, Snapshot or
// Cursor belongs to one goroutine at a time. Values that a Reader returned stay readable after Close.
//
// One goroutine calls BeginCycle, then PublishBlock, PublishRecord and AppendHistory, then EndCycle. In
// between it may also call [DeviceSlot.Rebase]. Every other method that changes the mirror waits for
// EndCycle.
//
// Section 13 of docs/mirror-format.md explains the order of loads and stores.
package shm
