package flexio

import (
	"encoding/binary"
	"reflect"
)

// SQESeg is flexio_dev_sqe_seg, the union of the segments of a send WQE. Exactly one field must be set. There is no
// way to decode an SQESeg, because its bytes do not tell the type: find it out by the opcode of the WQE, and
// [Decode] the segment.
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

// Validate returns an error unless exactly one segment is set.
func (s *SQESeg) Validate() error {
	_, err := s.set()
	return err
}

// Append appends the bytes of the segment: 48 for the datagram segment, and 16 for the others.
func (s *SQESeg) Append(b []byte) ([]byte, error) {
	seg, err := s.set()
	if err != nil {
		return b, err
	}
	return binary.Append(b, binary.BigEndian, seg)
}

// set returns a pointer to the segment. It returns an error unless exactly one is set.
func (s *SQESeg) set() (seg any, err error) {
	c := checks{of: "flexio_dev_sqe_seg"}
	v := reflect.ValueOf(s).Elem()
	first := "" // name of the first segment that is set
	for _, f := range reflect.VisibleFields(v.Type()) {
		field := v.FieldByIndex(f.Index)
		if field.IsNil() {
			continue
		}

		ref := f.Tag.Get("ref")
		if first != "" {
			c.refuse(ref, "%s is set too: a place holds one segment", first)
			continue
		}
		first = ref
		seg = field.Interface()
	}
	if first == "" {
		c.refuse("ctrl", "neither this segment nor another is set")
	}
	return seg, c.err()
}
