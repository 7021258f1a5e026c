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
			Ref:   "three bare atomic loads, Go",
			Bound: 2.2,
			Open:  openRead,
		},
		{
			Name:  "shm.read.c",
			Ref:   "three bare acquire loads, C",
			Bound: 2.0,
			Open:  openReadC,
		},
		{
			Name:  "shm.read.busy",
			Ref:   "shm.read: the same with an idle writer",
			Bound: 1.2,
			Open:  openBusy,
		},
		{
			Name:  "shm.snapshot.16k",
			Ref:   "memcpy of the values, block by block, 256 of 1,536 bytes",
			Bound: 1.3,
			Unit:  "ns per snapshot",
			Open:  openSnapshot16k,
		},
		{
			Name:  "shm.snapshot.256k",
			Ref:   "memcpy of the values, 6,291,456 bytes",
			Bound: 1.15,
			Unit:  "ns per snapshot",
			Open:  openSnapshot256k,
		},
		{
			Name:  "shm.publish",
			Ref:   "memcpy of the values, 1,536 bytes",
			Bound: 2.0,
			Unit:  "ns per block",
			Open:  openPublish,
		},
		{
			Name:     "shm.visible",
			Ref:      "one cache line ping-pong, one way",
			Bound:    1.6,
			Unit:     "ns one way, p50",
			Openings: 15, // the ratio depends on where the lines lie: 1.44 to 1.60 with five
			Open:     openVisible,
		},
		{
			Name:  "shm.wait",
			Ref:   "a bare futex, woken from the other CPU",
			Bound: 1.3,
			Unit:  "ns to wake, p50",
			Open:  openWait,
		},
		{
			Name:     "shm.wait.crowd",
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
			Ref:   "the same without that member of the group",
			Bound: 1.05,
			Unit:  "ns per cycle at 10 ms",
			Open:  openMember,
		},
		{
			Name:  "shm.wait.idle",
			Ref:   "a writer without a page, and a bare futex wake",
			Bound: 1.2,
			Unit:  "ns of CPU per cycle at 10 ms",
			Open:  openIdle,
		},
		{
			Name:  "shm.wait.idle.busy",
			Ref:   "a writer without a page, and a bare futex wake every tenth cycle",
			Bound: 2.0, // a timer beside the wakes fires once in 10 ms: a thousandth of waking its thread is 20 to 80 ns
			Unit:  "ns per cycle to end it",
			Open:  openIdleBusy,
		},
	}
}
