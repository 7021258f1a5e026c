package ibv

import (
	"encoding/binary"
	"fmt"
	"syscall"
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
// creating the flow: without an attached point the flow is refused with EINVAL. The flow holds Counters until
// it is closed. A flow can have only one CountSpec.
type CountSpec struct {
	Counters *Counters
}

func (s CountSpec) specType() specType { return specActionCount }

// appendSpec writes the address of the C object. The specs follow 20 bytes of attributes, so this pointer is
// not aligned. We therefore build and copy the blob as bytes, and never cast it to a struct. verbs_abi.h
// compiles only if pointers have 8 bytes. Handle 0 would crash the library.
//
// A flow whose Counters have no attached point must not reach libmlx5 (rdma-core 44.0 to 64.0): it refuses the flow
// with the counters object locked, and the next Attach or CreateFlow with this object waits for ever.
func (s CountSpec) appendSpec(b []byte) ([]byte, error) {
	if s.Counters == nil || s.Counters.h == 0 {
		return nil, fmt.Errorf("encoding a COUNT spec: its Counters are nil, or %w", ErrClosed)
	}
	if r := s.refusal(); r.errno != 0 {
		return nil, fmt.Errorf("encoding a COUNT spec: %s: %s: %w", s.Counters.name(), r.reason, r.errno)
	}
	b = pad(appendHeader(b, s.specType(), 16), len(b)+8)
	return binary.NativeEndian.AppendUint64(b, uint64(s.Counters.h)), nil
}

// refusal returns the rule broken by the counters object.
func (s CountSpec) refusal() refusal {
	if s.Counters != nil && !s.Counters.attached.Load() {
		return refusal{syscall.EINVAL, "no point is attached, so there is nothing to count: call Counters.Attach before CreateFlow"}
	}
	return refusal{}
}
