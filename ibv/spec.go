package ibv

import (
	"encoding/binary"
	"fmt"
)

// Spec is one element of a flow: a header to match, or an action. It is implemented by the types of this
// package with a name ending in Spec: all specs of verbs.h, except IBV_FLOW_SPEC_ACTION_HANDLE. The objects
// of that one (ESP, header modification, reformatting) change packets, and this package only counts them. Pass the values
// of these types: pointers to them are refused.
//
// Order match specs from the outermost header to the innermost. Specs with Inner set must follow the
// tunnel's spec. A match spec has a value and a mask, with numbers in host order. Do not set bits of Val
// outside Mask: drivers treat them differently.
type Spec interface {
	specType() specType
	appendSpec(b []byte) ([]byte, error)
}

// specType is enum ibv_flow_spec_type.
type specType uint32

const (
	specEth         specType = 0x20
	specIPv4        specType = 0x30
	specIPv6        specType = 0x31
	specIPv4Ext     specType = 0x32
	specESP         specType = 0x34
	specTCP         specType = 0x40
	specUDP         specType = 0x41
	specVXLANTunnel specType = 0x50
	specGRE         specType = 0x51
	specMPLS        specType = 0x60
	specInner       specType = 0x100 // flag
	specActionTag   specType = 0x1000
	specActionDrop  specType = 0x1001
	specActionCount specType = 0x1003
)

var nameBySpecType = map[specType]string{
	specEth:         "ETH",
	specIPv4:        "IPV4",
	specIPv6:        "IPV6",
	specIPv4Ext:     "IPV4_EXT",
	specESP:         "ESP",
	specTCP:         "TCP",
	specUDP:         "UDP",
	specVXLANTunnel: "VXLAN_TUNNEL",
	specGRE:         "GRE",
	specMPLS:        "MPLS",
	specActionTag:   "ACTION_TAG",
	specActionDrop:  "ACTION_DROP",
	specActionCount: "ACTION_COUNT",
}

// String returns the name in verbs.h without its prefix.
func (t specType) String() string {
	name, ok := nameBySpecType[t&^specInner]
	if !ok {
		return fmt.Sprintf("specType(%#x)", uint32(t))
	}
	if t&specInner != 0 {
		return "inner " + name
	}
	return name
}

// inner returns the type with the flag specInner if set is true.
func (t specType) inner(set bool) specType {
	if set {
		t |= specInner
	}
	return t
}

// specHeader is the size of the header of every spec: its type and size.
const specHeader = 6

// appendHeader appends the header of a spec of size bytes, header included. Type and size are in host order,
// unlike the values to match.
func appendHeader(b []byte, t specType, size int) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(t))
	return binary.NativeEndian.AppendUint16(b, uint16(size))
}

// filter is the value or the mask of a match spec: struct ibv_flow_*_filter.
type filter interface {
	appendFilter(b []byte) []byte
}

// filterShape describes where C puts the two filters of a spec.
type filterShape struct {
	align int // 2: the first filter follows the header at once; 4: two bytes later
	size  int // including the filter's own padding
}

// appendMatch appends a match spec: header, value and mask. Like its sizeof in C, it has a multiple of 4 bytes.
func appendMatch(b []byte, t specType, shape filterShape, val, mask filter) []byte {
	start := len(b)
	valAt := start + roundUp(specHeader, shape.align)
	maskAt := valAt + shape.size
	end := start + roundUp(maskAt+shape.size-start, 4)

	b = pad(appendHeader(b, t, end-start), valAt)
	b = pad(val.appendFilter(b), maskAt)
	return pad(mask.appendFilter(b), end)
}

// pad appends zeros until b has end bytes.
func pad(b []byte, end int) []byte {
	return append(b, make([]byte, end-len(b))...)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
