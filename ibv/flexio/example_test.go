package flexio_test

import (
	"fmt"
	"time"

	"github.com/flowtally/flowtally/ibv/flexio"
)

// The control segment of a work queue entry, from its 16 bytes.
func ExampleDecode() {
	seg, err := flexio.Append(nil, "flexio_dev_wqe_ctrl_seg", flexio.Values{"idx_opcode": 5<<8 | 0x0a, "qpn_ds": 17<<8 | 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctrl, err := flexio.Decode("flexio_dev_wqe_ctrl_seg", seg)
	fmt.Println(ctrl.Uint("qpn_ds")>>8, ctrl.Uint("idx_opcode")>>8, err)
	// Output: 17 5 <nil>
}

// The attributes of a new queue pair, of which two are wrong.
func ExampleValidate() {
	err := flexio.Validate("flexio_qp_attr", flexio.Values{
		"transport_type":  "RC",
		"pd":              1,
		"log_sq_depth":    16,
		"rq_type":         "zero-RQ",
		"qp_wq_buff_qmem": flexio.Values{"daddr": 0x1000},
		"qp_wq_dbr_qmem":  flexio.Values{"daddr": 0x2004},
	}, "create")
	fmt.Println(err)
	// Output:
	// checking flexio_qp_attr.log_sq_depth: 16 does not fit the device's field of 4 bits: at most 15
	// checking flexio_qp_attr.qp_wq_dbr_qmem.daddr: 0x2004 is not a multiple of 8
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
		entry, err := flexio.Append(nil, "flexio_dev_cqe64", flexio.Values{"byte_cnt": 100, "wqe_counter": i})
		if err != nil {
			fmt.Println(err)
			return
		}
		copy(mem[64*i:], entry)
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
	entry[61] = 9 // wqe_counter, as the device writes it after ten packets
	entry[60] = 0
	n := queue.Sample(clock)
	fmt.Println(n.Completed, n.Errors)
	// Output: 10 0
}
