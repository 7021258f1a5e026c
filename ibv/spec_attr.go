package ibv

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// flowAttrSize is sizeof(struct ibv_flow_attr). The first spec follows without a gap.
const flowAttrSize = 20

// appendFlow appends the argument of ibv_create_flow: struct ibv_flow_attr, followed by the specs. It refuses
// a flow without an encoding, and a flow that a library would accept and ignore. It leaves all other refusals
// to the library, because [FlowAttr.Check] does not know every device.
func appendFlow(b []byte, a FlowAttr) ([]byte, error) {
	if err := areValues(a.Specs); err != nil {
		return nil, err
	}
	if err := countsSilentlyNothing(a); err != nil {
		return nil, err
	}
	if len(a.Specs) > math.MaxUint8 {
		return nil, fmt.Errorf("encoding a flow of %d specs: num_of_specs has 8 bits: use at most %d", len(a.Specs), maxSpecs)
	}

	start := len(b)
	b = pad(b, start+flowAttrSize)
	for i, s := range a.Specs {
		var err error
		if b, err = s.appendSpec(b); err != nil {
			return nil, fmt.Errorf("spec %d of the flow: %w", i, err)
		}
	}

	head := b[start:]
	ne := binary.NativeEndian
	ne.PutUint32(head[4:], uint32(a.Type))    // comp_mask before it stays 0
	ne.PutUint16(head[8:], uint16(len(head))) // at most 20 + 255*88
	ne.PutUint16(head[10:], a.Priority)
	head[12] = uint8(len(a.Specs))
	head[13] = a.Port
	ne.PutUint32(head[16:], uint32(a.Flags))
	return b, nil
}

// areValues refuses specs that are nil, or pointers. A pointer has the methods of Spec too, but is none of the types that
// CreateFlow and Check know: the flow would not hold the Counters of a *CountSpec.
func areValues(specs []Spec) error {
	for i, s := range specs {
		if s == nil {
			return fmt.Errorf("encoding spec %d of the flow: it is nil: leave it out: %w", i, syscall.EINVAL)
		}
		if reflect.TypeOf(s).Kind() == reflect.Pointer {
			return fmt.Errorf("encoding spec %d of the flow: it is a %T: pass the value: %w", i, s, syscall.EINVAL)
		}
	}
	return nil
}

// countsSilentlyNothing refuses a COUNT spec in a flow of any type other than NORMAL. mlx5 makes its own rules
// for these types and silently drops the count action. Reading the counters then calls a null pointer in the
// kernel.
func countsSilentlyNothing(a FlowAttr) error {
	if a.Type == FlowAttrNormal {
		return nil
	}
	for _, s := range a.Specs {
		if s.specType() == specActionCount {
			return &probe.UnsupportedError{
				Feature: "COUNT spec",
				Object:  fmt.Sprintf("a flow of type %v", a.Type),
				Reason:  "drivers drop the count action from all types but NORMAL without a word",
				Fix:     "use a NORMAL flow, with DONT_TRAP where the packets must go on",
			}
		}
	}
	return nil
}
