package flow

import (
	"cmp"
	"slices"
)

// Overlap reports whether some packet can match both flows. It considers directions, interfaces, masks, ranges, and the
// headers that a match implies. In doubt it returns true. The order of the arguments does not matter.
func Overlap(a, b *Flow) bool {
	return a.Direction == b.Direction &&
		(a.Interface == "" || b.Interface == "" || a.Interface == b.Interface) &&
		meet(&a.Match, &b.Match)
}

// meet reports whether some packet, or some packet inside a tunnel, can match both.
func meet(a, b *Match) bool {
	if a.Incomplete && (b.completeAbove() || b.MPLS != nil) || b.Incomplete && (a.completeAbove() || a.MPLS != nil) {
		return false
	}
	return meetUpper(a, b) && meetLink(a, b) && meetChoices(a, b) && meetTunnel(a, b) &&
		(meetIPv4(a, b) || meetIPv6(a, b) || meetOther(a, b))
}

// both reports whether some value satisfies both.
func both[T ~uint8 | ~uint16 | ~uint32](a, b Masked[T]) bool {
	return (a.Value^b.Value)&a.Mask&b.Mask == 0
}

// bothBytes is like both, for addresses.
func bothBytes(a, aMask, b, bMask []byte) bool {
	for i := range a {
		if (a[i]^b[i])&aMask[i]&bMask[i] != 0 {
			return false
		}
	}
	return true
}

func meetLink(a, b *Match) bool {
	if a.Untagged && len(b.VLAN) > 0 || b.Untagged && len(a.VLAN) > 0 {
		return false
	}
	for i := range min(len(a.VLAN), len(b.VLAN)) {
		x, y := &a.VLAN[i], &b.VLAN[i]
		if !both(x.ID, y.ID) || !both(x.PCP, y.PCP) || !both(x.DEI, y.DEI) {
			return false
		}
	}
	if x, y := a.MPLS, b.MPLS; x != nil && y != nil &&
		!(both(x.Label, y.Label) && both(x.TC, y.TC) && both(x.Bottom, y.Bottom) && both(x.TTL, y.TTL)) {
		return false
	}
	x, y := a.Eth, b.Eth
	return x == nil || y == nil ||
		both(x.Type, y.Type) &&
			bothBytes(x.Src.Addr[:], x.Src.Mask[:], y.Src.Addr[:], y.Src.Mask[:]) &&
			bothBytes(x.Dst.Addr[:], x.Dst.Mask[:], y.Dst.Addr[:], y.Dst.Mask[:])
}

// meetUpper compares the protocols above IP, of which a packet has only one.
func meetUpper(a, b *Match) bool {
	vxlan := Port{Value: PortVXLAN, Mask: 0xffff}
	switch x, y := a.upper(), b.upper(); {
	case x != 0 && y != 0 && x != y:
		return false
	case a.ICMP != nil && b.ICMP != nil && !(both(a.ICMP.Type, b.ICMP.Type) && both(a.ICMP.Code, b.ICMP.Code)):
		return false
	case a.ESP != nil && b.ESP != nil && !both(a.ESP.SPI, b.ESP.SPI):
		return false
	case a.TCP != nil && b.TCP != nil && !(both(a.TCP.Flags, b.TCP.Flags) && meetPorts(&a.TCP.Ports, &b.TCP.Ports)):
		return false
	case a.VXLAN != nil && b.UDP != nil && !(bothPorts(b.UDP.Dst, vxlan) && b.choiceAdmits("udp", "dport", PortVXLAN)),
		b.VXLAN != nil && a.UDP != nil && !(bothPorts(a.UDP.Dst, vxlan) && a.choiceAdmits("udp", "dport", PortVXLAN)):
		return false
	}
	return meetPorts(a.UDP, b.UDP)
}

func meetPorts(a, b *Ports) bool {
	return a == nil || b == nil || bothPorts(a.Src, b.Src) && bothPorts(a.Dst, b.Dst)
}

// meetTunnel compares tunnels of the same kind. meetUpper has already excluded tunnels of different kinds.
func meetTunnel(a, b *Match) bool {
	if x, y := a.VXLAN, b.VXLAN; x != nil && y != nil {
		return both(x.VNI, y.VNI) && meetInner(x.Inner, y.Inner)
	}
	if x, y := a.GRE, b.GRE; x != nil && y != nil {
		return both(x.Key, y.Key) && meetInner(x.Inner, y.Inner)
	}
	return true
}

func meetInner(a, b *Match) bool { return a == nil || b == nil || meet(a, b) }

// meetIPv4 reports whether some IPv4 packet can match both. meetLink compares the link layer.
func meetIPv4(a, b *Match) bool {
	if a.IPv6 != nil || b.IPv6 != nil || a.MPLS != nil || b.MPLS != nil || !a.AdmitsEtherType(EtherIPv4) || !b.AdmitsEtherType(EtherIPv4) {
		return false
	}
	if parts(a)&parts(b) == 0 {
		return false
	}
	var wild IPv4
	x, y := cmp.Or(a.IPv4, &wild), cmp.Or(b.IPv4, &wild)
	if !both(x.Proto, y.Proto) || !both(x.TOS, y.TOS) || !both(x.TTL, y.TTL) ||
		!bothBytes(x.Src.Addr[:], x.Src.Mask[:], y.Src.Addr[:], y.Src.Mask[:]) ||
		!bothBytes(x.Dst.Addr[:], x.Dst.Mask[:], y.Dst.Addr[:], y.Dst.Mask[:]) {
		return false
	}
	// The protocol is the header's own field.
	upper := max(a.upper(), b.upper())
	if upper == 0 {
		return true
	}
	n := uint32(protocolNumber(upper, false))
	return x.Proto.admits(n) && y.Proto.admits(n) && a.choiceAdmits("ipv4", "proto", n) && b.choiceAdmits("ipv4", "proto", n)
}

// Kinds of packets for the fragment field, as a bit set.
const (
	partWhole = 1 << iota
	partFirst
	partLater
)

// parts returns which of a whole datagram, a first and a later fragment can match. Later fragments have no header above IP,
// so they cannot match its fields.
func parts(m *Match) int {
	all := [...]int{
		FragmentAny: partWhole | partFirst | partLater, FragmentNo: partWhole, FragmentYes: partFirst | partLater,
		FragmentFirst: partFirst, FragmentLater: partLater,
	}[m.fragment()]
	if m.looksAbove() {
		all &^= partLater
	}
	return all
}

// meetIPv6 reports whether some IPv6 packet can match both. meetLink compares the link layer.
func meetIPv6(a, b *Match) bool {
	if a.IPv4 != nil || b.IPv4 != nil || a.MPLS != nil || b.MPLS != nil || !a.AdmitsEtherType(EtherIPv6) || !b.AdmitsEtherType(EtherIPv6) {
		return false
	}
	if parts(a)&parts(b) == 0 {
		return false
	}
	var wild IPv6
	x, y := cmp.Or(a.IPv6, &wild), cmp.Or(b.IPv6, &wild)
	if !both(x.FlowLabel, y.FlowLabel) || !both(x.NextHeader, y.NextHeader) ||
		!both(x.TrafficClass, y.TrafficClass) || !both(x.HopLimit, y.HopLimit) ||
		!bothBytes(x.Src.Addr[:], x.Src.Mask[:], y.Src.Addr[:], y.Src.Mask[:]) ||
		!bothBytes(x.Dst.Addr[:], x.Dst.Mask[:], y.Dst.Addr[:], y.Dst.Mask[:]) {
		return false
	}
	upper := max(a.upper(), b.upper())
	if upper == 0 {
		return true
	}
	// The next header is the protocol itself, or an extension header before it.
	n := protocolNumber(upper, true)
	fits := func(next uint32) bool {
		return x.NextHeader.admits(next) && y.NextHeader.admits(next) &&
			a.choiceAdmits("ipv6", "nexthdr", next) && b.choiceAdmits("ipv6", "nexthdr", next)
	}
	return fits(uint32(n)) || slices.ContainsFunc(extensions, fits)
}

// meetOther reports whether some packet without an IP header can match both.
func meetOther(a, b *Match) bool {
	if a.MPLS != nil || b.MPLS != nil {
		admits := func(typ uint16) bool { return a.AdmitsEtherType(typ) && b.AdmitsEtherType(typ) }
		if !admits(EtherMPLS) && !admits(EtherMPLSMulticast) {
			return false
		}
	}
	return !a.needsIP() && !b.needsIP()
}

// bothPorts reports whether some port number satisfies both.
func bothPorts(a, b Port) bool {
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

// firstFrom returns the smallest number n >= lo with n&mask == value, if there is one.
func firstFrom(lo, value, mask uint16) (uint16, bool) {
	if lo&mask == value {
		return lo, true
	}
	// A number above lo agrees with lo down to some bit, where it has 1 and lo has 0. The lower that bit, the smaller the
	// number. The bits below are as small as the mask allows.
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

// meetChoices compares each field for which one of the matches has a choice, where the other one asks for the field too.
func meetChoices(a, b *Match) bool {
	for i := range a.Choices {
		if !a.Choices[i].meets(b) {
			return false
		}
	}
	for i := range b.Choices {
		if c := &b.Choices[i]; a.choice(c.Clause, c.Tag, c.Field) == nil && !c.meets(a) {
			return false
		}
	}
	return true
}

// meets reports whether a field may have a value of the choice and one that other asks for. In doubt it returns true.
func (c *Choice) meets(other *Match) bool {
	f := c.fieldOf()
	if f == nil {
		return true
	}
	theirs := other.choice(c.Clause, c.Tag, c.Field)
	if theirs == nil {
		ref := c.in(other)
		if ref == nil || !f.looks(ref) {
			return true
		}
		theirs = &Choice{Values: []Value{loadValue(ref)}}
	}
	x, sure := f.setOf(c, mostAlternatives)
	y, too := f.setOf(theirs, mostAlternatives)
	return !sure || !too || f.meetSets(x, y)
}
