package ibv

import (
	"encoding/binary"
	"fmt"
)

// Spec is one element of a flow: a header to match, or an action. The types of this package that
// end in Spec implement it. The set is that of verbs.h without IBV_FLOW_SPEC_ACTION_HANDLE: its
// objects (ESP, header modification, reformatting) change packets, and this package only counts
// them.
//
// Match specs come outermost header first, and specs with Inner set come behind the tunnel's spec.
// A match spec has a value and a mask. Numbers are in host order. A bit of Val whose bit in Mask is
// clear should be clear: drivers differ in their treatment of such bits.
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
	specInner       specType = 0x100 // a flag
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

// String is the name in verbs.h without its prefix.
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

// inner returns the type of a spec, whose field Inner is set or not.
func (t specType) inner(set bool) specType {
	if set {
		t |= specInner
	}
	return t
}

// specHeader is the size of type and size, with which every spec begins.
const specHeader = 6

// appendHeader appends the head of a spec whose whole size is size bytes. Type and size are in host
// order, the matched values in network order.
func appendHeader(b []byte, t specType, size int) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(t))
	return binary.NativeEndian.AppendUint16(b, uint16(size))
}

// filter is one half of a match spec: struct ibv_flow_*_filter.
type filter interface {
	appendFilter(b []byte) []byte
}

// filterShape says where C puts the two filters of a spec.
type filterShape struct {
	align int // 2: the first filter begins right behind the header; 4: two bytes later
	size  int // with the filter's own padding
}

// appendMatch appends a match spec: header, value, mask. The specs lie packed in the
// blob, each a multiple of 4 bytes long, as sizeof has them.
func appendMatch(b []byte, t specType, shape filterShape, val, mask filter) []byte {
	start := len(b)
	valAt := start + roundUp(specHeader, shape.align)
	maskAt := valAt + shape.size
	end := start + roundUp(maskAt+shape.size-start, 4)

	b = pad(appendHeader(b, t, end-start), valAt)
	b = pad(val.appendFilter(b), maskAt)
	return pad(mask.appendFilter(b), end)
}

// pad appends zeroes up to the length of end.
func pad(b []byte, end int) []byte {
	return append(b, make([]byte, end-len(b))...)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
