package shmrows

import (
	"time"

	"github.com/flowtally/flowtally/internal/bench"
)

// Rows returns the rows of the mirror. They hold no resource until opened.
func Rows() []bench.Row {
	return []bench.Row{
		{
			Name:  "shm.read",
			Ours:  "a counter read (`HandleCounter.Load`, Go)",
			Ref:   "three bare atomic loads, Go",
			Bound: 2.0,
			Open:  openRead,
		},
		{
			Name:  "shm.read.c",
			Ours:  "the same in C (`ft_load`)",
			Ref:   "three bare acquire loads, C",
			Bound: 1.6,
			Open:  openReadC,
		},
		{
			Name:  "shm.read.busy",
			Ours:  "the same of a latency counter that another CPU publishes a million times a second",
			Ref:   "shm.read: the same with an idle writer",
			Bound: 1.2,
			Open:  openBusy,
		},
		{
			Name:  "shm.snapshot.16k",
			Ours:  "a labelled snapshot of 16,384 counters, after 1,000 random removals and additions",
			Ref:   "memcpy of the values, block by block, 256 of 1,536 bytes",
			Bound: 1.3,
			Unit:  "ns per snapshot",
			Open:  openSnapshot16k,
		},
		{
			Name:  "shm.snapshot.256k",
			Ours:  "the same of 262,144 counters",
			Ref:   "memcpy of the values, 6,291,456 bytes",
			Bound: 1.15,
			Unit:  "ns per snapshot",
			Open:  openSnapshot256k,
		},
		{
			Name:  "shm.publish",
			Ours:  "a block of 64 counters published",
			Ref:   "memcpy of the values, 1,536 bytes",
			Bound: 2.3,
			Unit:  "ns per block",
			Open:  openPublish,
		},
		{
			Name:     "shm.visible",
			Ours:     "from a publish until a spinning reader on the other CPU has it, p50",
			Ref:      "one cache line ping-pong, one way",
			Bound:    1.6,
			Unit:     "ns one way, p50",
			Openings: 15, // the ratio depends on where the lines lie: 1.44 to 1.60 with five
			Open:     openVisible,
		},
		{
			Name:  "shm.wait",
			Ours:  "from the end of a poll cycle until `Wait`, asleep on the other CPU, has returned, p50",
			Ref:   "a bare futex, woken from the other CPU",
			Bound: 1.4,
			Unit:  "ns to wake, p50",
			Open:  openWait,
		},
		{
			Name:     "shm.wait.crowd",
			Ours:     "poll cycles 10 ms apart while 4,000 threads sleep in `ft_wait`",
			Ref:      "the same sleepers on a futex of their own",
			Bound:    1.05,
			Unit:     "ns per cycle at 10 ms",
			Rounds:   11, // each moves 4,000 sleepers, which takes half a second
			Openings: 1,
			Time:     40 * time.Second,
			Open:     openCrowd,
		},
		{
			Name:  "shm.wait.member",
			Ours:  "poll cycles 10 ms apart while a member of the wait group does its worst",
			Ref:   "the same without that member of the group",
			Bound: 1.05,
			Unit:  "ns per cycle at 10 ms",
			Open:  openMember,
		},
		{
			Name:  "shm.wait.idle",
			Ours:  "CPU time of poll cycles 10 ms apart without sleepers",
			Ref:   "a writer without a page, and a bare futex wake",
			Bound: 1.2,
			Unit:  "ns of CPU per cycle at 10 ms",
			Open:  openIdle,
		},
		{
			Name:  "shm.wait.idle.busy",
			Ours:  "the end of a cycle without sleepers, cycles 10 µs apart",
			Ref:   "a writer without a page, and a bare futex wake every tenth cycle",
			Bound: 2.0, // a timer beside the wakes fires once in 10 ms: a thousandth of waking its thread is 20 to 80 ns
			Unit:  "ns per cycle to end it",
			Open:  openIdleBusy,
		},
	}
}
