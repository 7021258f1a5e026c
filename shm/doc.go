// Package shm implements the mirror: a file on a tmpfs in which one [Writer] publishes counter values for any
// number of processes. A reader maps the file read-only and reads values without a system call, a lock or an
// allocation. Most programs call [Open] and [Instance.Counter], and then [Counter.Load] as often as they like.
//
// docs/mirror-format.md specifies the file, and layout.go has its offsets.
//
// # The file
//
// The file is a header, a history ring, and segments. A segment holds the catalogue entries of 4096
// counters and their values: in blocks of 64, or in one record for each latency counter. A full mirror
// grows by a segment. Nothing moves when it does, and every [Handle] stays valid.
//
// # Values
//
// The three words of a [Value] belong to one instant, even if the writer is killed while it publishes: it
// fills the copy that is not current, and then a store to the sequence word makes that one current. Times
// are nanoseconds of CLOCK_MONOTONIC ([Now]). A SampledAt of 0 means that there is no value yet.
//
// A [Snapshot] knows its poll cycle, and a [Cursor] of the history counts the records that it missed. A
// writer never blocks a reader: a reader that cannot keep up returns [ErrBusy]. The handle of a removed
// counter returns [ErrGone], even if another counter has its slot by then. If somebody cuts the file short,
// a read faults; [Guard] turns the fault into [ErrTruncated].
//
// # Following
//
// If another process removes, replaces, cuts or overwrites the file, the writer makes the mirror anew
// under the same name ([Writer.Remake]). It marks the old file if it can, and readers of the old file get
// [ErrStale]. An [Instance] then opens the new file by itself, and each [Counter] continues there. In case
// the writer could not mark the old file, the Instance also checks the name twice in a heartbeat period,
// and at least once a second.
//
// # Waiting
//
// [Counter.Wait] and [Reader.Wait] sleep until a counter reaches a count. A sleeping Wait occupies a
// thread. The writer wakes it after a poll cycle, through the file NAME.wait (docs/mirror-format.md). If the
// process may not read that file, Wait reads the counter once per cycle instead.
//
// # Device words
//
// A [Device] reads two totals directly from the memory that a device writes, in the file NAME.device
// (docs/mirror-format.md). The two totals need not belong to one instant.
//
// # Goroutines
//
// Any goroutine may call the methods of Reader, Instance and Device. Use a Counter, HandleCounter, Snapshot,
// EntryWatcher, Live or Cursor from one goroutine at a time. They stay readable after Close.
//
// For each poll cycle one goroutine must call BeginCycle, then PublishBlock, PublishRecord and
// AppendHistory, then EndCycle. In between it may also call [DeviceSlot.Rebase]. Every other method that
// changes the mirror waits for EndCycle, so the same goroutine must not call it before.
//
// Section 13 of docs/mirror-format.md explains the order of loads and stores.
package shm
