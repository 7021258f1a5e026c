package ibv

import (
	"encoding/binary"
	"fmt"
)

// TagSpec (IBV_FLOW_SPEC_ACTION_TAG) gives the completions of matched packets a tag.
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

// CountSpec (IBV_FLOW_SPEC_ACTION_COUNT) counts the matched packets into Counters. All Attach calls
// of Counters come before, and the flow holds it until it is closed. A flow takes one CountSpec.
type CountSpec struct {
	Counters *Counters
}

func (s CountSpec) specType() specType { return specActionCount }

// appendSpec writes the address of the C object. The blob lies right behind 20 bytes of attributes,
// so this pointer is not aligned: the blob is built and copied as bytes, never laid under a struct.
// Pointers are 8 bytes long, or verbs_abi.h does not compile. A handle 0 would crash the library.
func (s CountSpec) appendSpec(b []byte) ([]byte, error) {
	if s.Counters == nil || s.Counters.h == 0 {
		return nil, fmt.Errorf("counters of the COUNT spec: %w", ErrClosed)
	}
	b = pad(appendHeader(b, s.specType(), 16), len(b)+8)
	return binary.NativeEndian.AppendUint64(b, uint64(s.Counters.h)), nil
}
