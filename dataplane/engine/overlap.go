package engine

import (
	"cmp"
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// overlap says whether one packet can match both flows, on one side of one
// interface. It is exact on masks, ranges and what headers ask of one another; where it
// errs it says yes. It is symmetric.
func overlap(a, b *flow.Flow) bool {
	return a.Direction == b.Direction &&
		(a.Interface == "" || b.Interface == "" || a.Interface == b.Interface) &&
		meet(&a.Match, &b.Match)
}

// meet says whether one packet, or one packet inside a tunnel, can match both.
func meet(a, b *flow.Match) bool {
	if a.Incomplete && looksAbove(b) || b.Incomplete && looksAbove(a) {
		return false
	}
	return meetUpper(a, b) && meetLink(a, b) && meetTunnel(a, b) &&
		(meetIPv4(a, b) || meetIPv6(a, b) || meetOther(a, b))
}

// both says whether one value satisfies both.
func both[T ~uint8 | ~uint16 | ~uint32](a, b flow.Masked[T]) bool {
	return (a.Value^b.Value)&a.Mask&b.Mask == 0
}

// bothBytes is both for an address.
func bothBytes(a, aMask, b, bMask []byte) bool {
	for i := range a {
		if (a[i]^b[i])&aMask[i]&bMask[i] != 0 {
			return false
		}
	}
	return true
}

func meetLink(a, b *flow.Match) bool {
	for i := range min(len(a.VLAN), len(b.VLAN)) {
		x, y := &a.VLAN[i], &b.VLAN[i]
		if !both(x.ID, y.ID) || !both(x.PCP, y.PCP) || !both(x.DEI, y.DEI) {
			return false
		}
	}
	x, y := a.Eth, b.Eth
	return x == nil || y == nil ||
		both(x.Type, y.Type) &&
			bothBytes(x.Src.Addr[:], x.Src.Mask[:], y.Src.Addr[:], y.Src.Mask[:]) &&
			bothBytes(x.Dst.Addr[:], x.Dst.Mask[:], y.Dst.Addr[:], y.Dst.Mask[:])
}

// meetUpper compares what stands above IP: a packet has one protocol there.
func meetUpper(a, b *flow.Match) bool {
	vxlan := flow.Port{Value: portVXLAN, Mask: 0xffff}
	switch x, y := upperOf(a), upperOf(b); {
	case x != 0 && y != 0 && x != y:
		return false
	case a.ICMP != nil && b.ICMP != nil && !(both(a.ICMP.Type, b.ICMP.Type) && both(a.ICMP.Code, b.ICMP.Code)):
		return false
	case a.VXLAN != nil && b.UDP != nil && !bothPorts(b.UDP.Dst, vxlan),
		b.VXLAN != nil && a.UDP != nil && !bothPorts(a.UDP.Dst, vxlan):
		return false
	}
	return meetPorts(a.TCP, b.TCP) && meetPorts(a.UDP, b.UDP)
}

func meetPorts(a, b *flow.Ports) bool {
	return a == nil || b == nil || bothPorts(a.Src, b.Src) && bothPorts(a.Dst, b.Dst)
}

// meetTunnel compares two tunnels of one kind; of two kinds none are in one packet.
func meetTunnel(a, b *flow.Match) bool {
	if x, y := a.VXLAN, b.VXLAN; x != nil && y != nil {
		return both(x.VNI, y.VNI) && meetInner(x.Inner, y.Inner)
	}
	if x, y := a.GRE, b.GRE; x != nil && y != nil {
		return both(x.Key, y.Key) && meetInner(x.Inner, y.Inner)
	}
	return true
}

func meetInner(a, b *flow.Match) bool { return a == nil || b == nil || meet(a, b) }

// The protocols above IP that a match can ask for, as one number for both families.
const (
	upperTCP = iota + 1
	upperUDP
	upperICMP
	upperGRE
)

func upperOf(m *flow.Match) int {
	switch {
	case m.TCP != nil:
		return upperTCP
	case m.UDP != nil, m.VXLAN != nil:
		return upperUDP
	case m.ICMP != nil:
		return upperICMP
	case m.GRE != nil:
		return upperGRE
	}
	return 0
}

// protocolNumber is the number of what upperOf names.
func protocolNumber(upper int, v6 bool) uint8 {
	switch {
	case upper == upperICMP && v6:
		return protoICMPv6
	case upper == upperICMP:
		return protoICMP
	}
	return [...]uint8{upperTCP: protoTCP, upperUDP: protoUDP, upperGRE: protoGRE}[upper]
}

// etherTypeFits says whether the packet may have this EtherType behind its tags.
func etherTypeFits(m *flow.Match, typ uint16) bool {
	return m.Eth == nil || typ&m.Eth.Type.Mask == m.Eth.Type.Value
}

const etherIPv4, etherIPv6 = 0x0800, 0x86dd

// meetIPv4 says whether an IPv4 packet can match both, the link layer apart.
func meetIPv4(a, b *flow.Match) bool {
	if a.IPv6 != nil || b.IPv6 != nil || !etherTypeFits(a, etherIPv4) || !etherTypeFits(b, etherIPv4) {
		return false
	}
	if parts(a)&parts(b) == 0 {
		return false
	}
	var wild flow.IPv4
	x, y := cmp.Or(a.IPv4, &wild), cmp.Or(b.IPv4, &wild)
	if !both(x.Proto, y.Proto) || !both(x.TOS, y.TOS) || !both(x.TTL, y.TTL) ||
		!bothBytes(x.Src.Addr[:], x.Src.Mask[:], y.Src.Addr[:], y.Src.Mask[:]) ||
		!bothBytes(x.Dst.Addr[:], x.Dst.Mask[:], y.Dst.Addr[:], y.Dst.Mask[:]) {
		return false
	}
	// The protocol is the header's own field.
	upper := max(upperOf(a), upperOf(b))
	if upper == 0 {
		return true
	}
	n := protocolNumber(upper, false)
	return n&x.Proto.Mask == x.Proto.Value && n&y.Proto.Mask == y.Proto.Value
}

// The parts of a datagram that a match can ask for.
const (
	partWhole = 1 << iota
	partFirst
	partLater
)

// parts are those that an IPv4 match allows: what looks above IP beyond the
// protocol's number never sees a later fragment.
func parts(m *flow.Match) int {
	all := partWhole | partFirst | partLater
	if m.IPv4 != nil {
		all = [...]int{
			flow.FragmentAny: all, flow.FragmentNo: partWhole, flow.FragmentYes: partFirst | partLater,
			flow.FragmentFirst: partFirst, flow.FragmentLater: partLater,
		}[m.IPv4.Fragment]
	}
	if looksAbove(m) {
		all &^= partLater
	}
	return all
}

func looksAbove(m *flow.Match) bool {
	var none flow.Ports
	return m.TCP != nil && *m.TCP != none || m.UDP != nil && *m.UDP != none ||
		m.ICMP != nil && *m.ICMP != flow.ICMP{} || m.VXLAN != nil ||
		m.GRE != nil && (m.GRE.Key.Mask != 0 || m.GRE.Inner != nil)
}

// meetIPv6 says whether an IPv6 packet can match both, the link layer apart.
func meetIPv6(a, b *flow.Match) bool {
	if a.IPv4 != nil || b.IPv4 != nil || !etherTypeFits(a, etherIPv6) || !etherTypeFits(b, etherIPv6) {
		return false
	}
	var wild flow.IPv6
	x, y := cmp.Or(a.IPv6, &wild), cmp.Or(b.IPv6, &wild)
	if !both(x.FlowLabel, y.FlowLabel) || !both(x.NextHeader, y.NextHeader) ||
		!both(x.TrafficClass, y.TrafficClass) || !both(x.HopLimit, y.HopLimit) ||
		!bothBytes(x.Src.Addr[:], x.Src.Mask[:], y.Src.Addr[:], y.Src.Mask[:]) ||
		!bothBytes(x.Dst.Addr[:], x.Dst.Mask[:], y.Dst.Addr[:], y.Dst.Mask[:]) {
		return false
	}
	upper := max(upperOf(a), upperOf(b))
	if upper == 0 {
		return true
	}
	// The protocol stands behind the extension headers that are walked, if any.
	n := protocolNumber(upper, true)
	return slices.ContainsFunc([]uint8{n, 0, 43, 44, 51, 60, 135, 139, 140}, func(next uint8) bool {
		return next&x.NextHeader.Mask == x.NextHeader.Value && next&y.NextHeader.Mask == y.NextHeader.Value
	})
}

// meetOther says whether a packet without an IP header can match both.
func meetOther(a, b *flow.Match) bool {
	return a.IPv4 == nil && a.IPv6 == nil && b.IPv4 == nil && b.IPv6 == nil && upperOf(a) == 0 && upperOf(b) == 0
}

// bothPorts says whether one port number satisfies both.
func bothPorts(a, b flow.Port) bool {
	switch {
	case a.Last == 0 && b.Last == 0:
		return (a.Value^b.Value)&a.Mask&b.Mask == 0
	case a.Last != 0 && b.Last != 0:
		return a.Value <= b.Last && b.Value <= a.Last
	case a.Last != 0:
		a, b = b, a
	}
	first, ok := firstFrom(b.Value, a.Value, a.Mask)
	return ok && first <= b.Last
}

// firstFrom is the smallest number from lo on that equals value under mask, if there is one.
func firstFrom(lo, value, mask uint16) (uint16, bool) {
	if lo&mask == value {
		return lo, true
	}
	// Some bit is the lowest above which it equals lo; there it has a 1 where lo has
	// a 0, and below the least that the mask allows.
	for bit := range 16 {
		one := uint16(1) << bit
		above := ^(one<<1 - 1)
		if lo&one != 0 || mask&one != 0 && value&one == 0 || (lo^value)&mask&above != 0 {
			continue
		}
		return lo&above | one | value&(one-1), true
	}
	return 0, false
}
