package ibv

import (
	"encoding/binary"
	"fmt"
)

// TagSpec (IBV_FLOW_SPEC_ACTION_TAG) puts a tag into the completions of matched packets.
type TagSpec struct {
	TagID uint32 // 24 bits on mlx5
}

func (s TagSpec) specType() specType { return specActionTag }

func (s TagSpec) appendSpec(b []byte) ([]byte, error) {
	b = pad(appendHeader(b, s.specType(), 12), len(b)+8)
	return binary.NativeEndian.AppendUint32(b, s.TagID), nil
}

// DropSpec (IBV_FLOW_SPEC_ACTION_DROP) drops the matched packets before the kernel sees them.
type DropSpec struct{}

func (s DropSpec) specType() specType { return specActionDrop }

func (s DropSpec) appendSpec(b []byte) ([]byte, error) {
	return pad(appendHeader(b, s.specType(), 8), len(b)+8), nil
}

// CountSpec (IBV_FLOW_SPEC_ACTION_COUNT) counts matched packets in Counters. Call Counters.Attach before
// creating the flow. The flow holds Counters until it is closed. A flow can have only one CountSpec.
type CountSpec struct {
	Counters *Counters
}

func (s CountSpec) specType() specType { return specActionCount }

// appendSpec writes the address of the C object. The specs follow 20 bytes of attributes, so this pointer is
// not aligned. We therefore build and copy the blob as bytes, and never cast it to a struct. verbs_abi.h
// compiles only if pointers have 8 bytes. Handle 0 would crash the library.
func (s CountSpec) appendSpec(b []byte) ([]byte, error) {
	if s.Counters == nil || s.Counters.h == 0 {
		return nil, fmt.Errorf("encoding a COUNT spec: its Counters are nil, or %w", ErrClosed)
	}
	b = pad(appendHeader(b, s.specType(), 16), len(b)+8)
	return binary.NativeEndian.AppendUint64(b, uint64(s.Counters.h)), nil
}
