package flexio

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Struct is a structure in queue memory. Each is declared in the order of its bytes, without holes, and
// all its fields are big-endian.
type Struct interface {
	CQE64 | ErrCQE | MiniCQEBlock | EQE |
		CtrlSeg | AtomicSeg | DatagramSeg | EthSeg | InlineDataSeg | InlineSendDataSeg | MemPtrSendDataSeg |
		RcvDataSeg | RDMASeg | SharedReceiveSeg | TransposeSeg | WaitOnDataSeg | WaitOnDataDataSeg
}

// ErrShort is returned for fewer bytes than the structure has.
var ErrShort = errors.New("too short")

// Size returns the structure's size in queue memory, in bytes.
func Size[T Struct]() int {
	var v T
	return binary.Size(v)
}

// Decode reads a structure from the beginning of b. Every pattern of bits is valid. If b is shorter
// than [Size], Decode returns ErrShort.
func Decode[T Struct](b []byte) (v T, err error) {
	if _, err := binary.Decode(b, binary.BigEndian, &v); err != nil {
		return v, fmt.Errorf("decoding %T from %d bytes, it has %d: %w", v, len(b), Size[T](), ErrShort)
	}
	return v, nil
}

// Append appends the bytes of v to b. It is the inverse of Decode.
func Append[T Struct](b []byte, v T) []byte {
	b, err := binary.Append(b, binary.BigEndian, &v)
	if err != nil {
		panic(err) // impossible, because all fields have a fixed size: TestStructsHaveTheirSizes
	}
	return b
}
