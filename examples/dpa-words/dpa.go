package main

import (
	"encoding/binary"

	"github.com/flowtally/flowtally/ibv/flexio"
)

// job tells the DPA program where it counts. The host copies its bytes to the memory of the DPA.
type job struct {
	addr uint64 // of the words in the host: completions, then errors, 8 bytes each
	lkey uint32 // for a window of the DPA
	rkey uint32 // for a queue pair of the DPA
}

// bytes returns the job as the DPA program reads it. The DPA is little-endian, as the host must be, which reads the words.
func (j job) bytes() []byte {
	b := binary.LittleEndian.AppendUint64(nil, j.addr)
	b = binary.LittleEndian.AppendUint32(b, j.lkey)
	return binary.LittleEndian.AppendUint32(b, j.rkey)
}

// sdk has what the Flex IO SDK returns on a DPU.
type sdk struct {
	pd     uint32 // number of the protection domain of the memory region
	stub   uint64 // the DPA program's entry in the host, which the SDK's compiler makes
	heap   uint64 // 64 KiB of the process's heap: flexio_buf_dev_alloc
	uar    uint32 // flexio_uar_get_id
	thread uint32 // of the event handler
	cqn    uint32 // flexio_cq_get_cq_num
}

// noSDK has a value for each, so that the attributes can be checked without a DPU.
var noSDK = sdk{pd: 1, stub: 0x400000, heap: 0x10000, uar: 1, thread: 1, cqn: 1}

// Places in the heap.
const (
	jobAt      = 0x0000
	cqDBRAt    = 0x0040
	rqDBRAt    = 0x0080
	cqRingAt   = 0x1000 // 2^logDepth entries of 64 bytes
	rqRingAt   = 0x2000 // 2^logDepth entries of 16 bytes
	buffersAt  = 0x4000
	buffersLen = 0xc000

	logDepth = 5
)

// call is a function of the SDK's host library, with its attributes.
type call struct {
	name      string
	structure string // of the attributes in reference 004; "" for none
	uses      []string
	attr      flexio.Values
}

// calls are those that start a DPA program, in their order. It counts the packets of a receive queue: each completion
// wakes its thread.
func calls(s sdk) []call {
	inHeap := func(at uint64) flexio.Values {
		return flexio.Values{"memtype": "FLEXIO_MEMTYPE_DPA", "daddr": s.heap + at}
	}
	return []call{
		// The key of the words is valid in the domain that has registered them. Without pd the SDK makes another one.
		{name: "flexio_process_create", structure: "flexio_process_attr", attr: flexio.Values{"name": "words", "pd": s.pd}},
		{name: "flexio_window_create"},  // through which the thread writes to memory of the host
		{name: "flexio_copy_from_host"}, // the job
		{name: "flexio_event_handler_create", structure: "flexio_event_handler_attr", attr: flexio.Values{
			"name":           "count",
			"host_stub_func": s.stub,
			"arg":            s.heap + jobAt,
			"affinity":       flexio.Values{"type": "none"},
		}},
		{name: "flexio_cq_create", structure: "flexio_cq_attr", attr: flexio.Values{
			"log_cq_depth": logDepth,
			"element_type": "thread",
			"thread":       s.thread,
			"uar_id":       s.uar,
			"cq_ring_qmem": inHeap(cqRingAt),
			"cq_dbr_daddr": s.heap + cqDBRAt,
		}},
		{name: "flexio_device_mkey_create", structure: "flexio_mkey_attr", attr: flexio.Values{
			"pd":     s.pd,
			"daddr":  s.heap + buffersAt,
			"len":    buffersLen,
			"access": 1, // IBV_ACCESS_LOCAL_WRITE: the device writes packets there
		}},
		{name: "flexio_rq_create", structure: "flexio_wq_attr", uses: []string{"rq"}, attr: flexio.Values{
			"log_wq_depth": logDepth,
			"pd":           s.pd,
			"uar_id":       s.uar,
			"rq":           flexio.Values{"wq_type": "cyclic"},
			"wq_ring_qmem": inHeap(rqRingAt),
			"wq_dbr_qmem":  inHeap(rqDBRAt),
		}},
		{name: "flexio_event_handler_run"},
	}
}
