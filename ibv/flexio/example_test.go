package flexio_test

import (
	"fmt"
	"time"

	"github.com/flowtally/flowtally/ibv/flexio"
)

// A completion queue entry, from its 64 bytes.
func ExampleDecode() {
	entry := flexio.Append(nil, flexio.CQE64{ByteCnt: 64, QPN24: [3]byte{2: 17}, WQECounter: 5})
	cqe, err := flexio.Decode[flexio.CQE64](entry)
	fmt.Println(cqe.QPN(), cqe.ByteCnt, cqe.WQECounter, err)
	// Output: 17 64 5 <nil>
}

// The ring of a completion queue of four entries, in which the device has written two.
func ExampleNewRing() {
	mem := make([]byte, 4*64)
	ring, err := flexio.NewRing(mem, flexio.RingOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ring.Init()
	for i := range 2 { // as the device does; the owner bit is 0 in the first round
		copy(mem[64*i:], flexio.Append(nil, flexio.CQE64{ByteCnt: 100, WQECounter: uint16(i)}))
	}
	var cqe flexio.CQE64
	for {
		ok, err := ring.Next(&cqe)
		if err != nil || !ok {
			fmt.Println(ring.Consumed(), err)
			return
		}
		fmt.Println(cqe.WQECounter, cqe.ByteCnt)
	}
	// Output:
	// 0 100
	// 1 100
	// 2 <nil>
}

// A collapsed completion queue: one entry, which the device overwrites with each completion.
func ExampleNewCollapsed() {
	entry := make([]byte, 64)
	queue, err := flexio.NewCollapsed(entry, flexio.CollapsedOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	queue.Init()
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) }
	copy(entry, flexio.Append(nil, flexio.CQE64{WQECounter: 9})) // as the device does after ten packets
	n := queue.Sample(clock)
	fmt.Println(n.Completed, n.Errors)
	// Output: 10 0
}
