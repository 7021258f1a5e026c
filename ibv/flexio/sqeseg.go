package flexio

import (
	"encoding/binary"
	"reflect"
)

// SQESeg is flexio_dev_sqe_seg, the union of the segments of a send WQE: exactly one is
// set. Which one lies at a place follows from the WQE's opcode, not from its bytes: read
// it with [Decode] of that segment's type.
type SQESeg struct {
	AdresVector    *DatagramSeg       `ref:"adres_vector"`
	Atomic         *AtomicSeg         `ref:"atomic"`
	Ctrl           *CtrlSeg           `ref:"ctrl"`
	Eth            *EthSeg            `ref:"eth"`
	InlineData     *InlineDataSeg     `ref:"inline_data"`
	InlineSendData *InlineSendDataSeg `ref:"inline_send_data"`
	MemPtrSendData *MemPtrSendDataSeg `ref:"mem_ptr_send_data"`
	RDMA           *RDMASeg           `ref:"rdma"`
	SharedReceive  *SharedReceiveSeg  `ref:"shared_receive"`
	Transpose      *TransposeSeg      `ref:"transpose"`
	WaitOnData     *WaitOnDataSeg     `ref:"wait_on_data"`
	WaitOnDataData *WaitOnDataDataSeg `ref:"wait_on_data_data"`
}

// Validate reports whether one segment is set, no less and no more.
func (s *SQESeg) Validate() error {
	_, err := s.set()
	return err
}

// Append appends the bytes of the segment that is set: 16, of the datagram segment 48.
func (s *SQESeg) Append(b []byte) ([]byte, error) {
	seg, err := s.set()
	if err != nil {
		return b, err
	}
	return binary.Append(b, binary.BigEndian, seg)
}

// set is the segment that is set.
func (s *SQESeg) set() (seg any, err error) {
	c := checks{of: "flexio_dev_sqe_seg"}
	v, first := reflect.ValueOf(s).Elem(), ""
	for _, f := range reflect.VisibleFields(v.Type()) {
		switch ref := f.Tag.Get("ref"); {
		case v.FieldByIndex(f.Index).IsNil():
		case first == "":
			first, seg = ref, v.FieldByIndex(f.Index).Interface()
		default:
			c.refuse(ref, "%s is set too: a place holds one segment", first)
		}
	}
	if first == "" {
		c.refuse("ctrl", "neither this segment nor another is set")
	}
	return seg, c.err()
}
