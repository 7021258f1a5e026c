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
	if a.Incomplete && b.complete() || b.Incomplete && a.complete() {
		return false
	}
	return meetUpper(a, b) && meetLink(a, b) && meetChoices(a, b) && meetTunnel(a, b) &&
		(meetIPv4(a, b) || meetIPv6(a, b) || meetOther(a, b))
}

// complete reports whether no packet with incomplete headers matches.
func (m *Match) complete() bool {
	return m.completeAbove() || m.MPLS != nil || m.ARP != nil && *m.ARP != ARP{} || m.chooses("arp")
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
	if x, y := a.MPLS, b.MPLS; x != nil && y != nil && !meetEntry(x, y) {
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
	switch x, y := a.upper(), b.upper(); {
	case x != 0 && y != 0 && x != y:
		return false
	case a.ICMP != nil && b.ICMP != nil && !(both(a.ICMP.Type, b.ICMP.Type) && both(a.ICMP.Code, b.ICMP.Code)):
		return false
	case a.ESP != nil && b.ESP != nil && !both(a.ESP.SPI, b.ESP.SPI):
		return false
	case a.AH != nil && b.AH != nil && !both(a.AH.SPI, b.AH.SPI):
		return false
	case a.SCTP != nil && b.SCTP != nil && !(both(a.SCTP.Tag, b.SCTP.Tag) && meetPorts(&a.SCTP.Ports, &b.SCTP.Ports)):
		return false
	case a.TCP != nil && b.TCP != nil && !(both(a.TCP.Flags, b.TCP.Flags) && meetPorts(&a.TCP.Ports, &b.TCP.Ports)):
		return false
	}
	return meetPorts(a.UDP, b.UDP) && meetTunnelPort(a, b) && meetTunnelPort(b, a)
}

// meetTunnelPort compares the port that a tunnel of a implies with the destination port of b.
func meetTunnelPort(a, b *Match) bool {
	port := a.TunnelPort()
	if port == 0 {
		return true
	}
	other := b.TunnelPort()
	return (other == 0 || other == port) && (b.UDP == nil || b.UDP.Dst.holds(port) && b.choiceAdmits("udp", "dport", uint32(port)))
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
	if x, y := a.IPIP, b.IPIP; x != nil && y != nil {
		return meetInner(x.Inner, y.Inner)
	}
	if x, y := a.Geneve, b.Geneve; x != nil && y != nil {
		return both(x.VNI, y.VNI) && meetInner(x.Inner, y.Inner)
	}
	if x, y := a.GTPU, b.GTPU; x != nil && y != nil {
		return both(x.TEID, y.TEID) && meetInner(x.Inner, y.Inner)
	}
	if x, y := a.MPLSUDP, b.MPLSUDP; x != nil && y != nil {
		return meetEntry(&x.MPLS, &y.MPLS) && meetInner(x.Inner, y.Inner)
	}
	return true
}

// meetEntry compares label stack entries.
func meetEntry(x, y *MPLS) bool {
	return both(x.Label, y.Label) && both(x.TC, y.TC) && both(x.Bottom, y.Bottom) && both(x.TTL, y.TTL)
}

func meetInner(a, b *Match) bool { return a == nil || b == nil || meet(a, b) }

// meetIPv4 reports whether some IPv4 packet can match both. meetLink compares the link layer.
func meetIPv4(a, b *Match) bool {
	if a.IPv6 != nil || b.IPv6 != nil || a.besideIP() || b.besideIP() || !a.AdmitsEtherType(EtherIPv4) || !b.AdmitsEtherType(EtherIPv4) {
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
	fits := func(n uint32) bool {
		return x.Proto.admits(n) && y.Proto.admits(n) && a.choiceAdmits("ipv4", "proto", n) && b.choiceAdmits("ipv4", "proto", n)
	}
	return meetProtocol(a, b, false, fits)
}

// meetProtocol reports whether some protocol above IP is that of both matches and fits the fields of their IP headers. meetUpper has
// already compared the protocols, of which IP in IP has two numbers.
func meetProtocol(a, b *Match, v6 bool, fits func(n uint32) bool) bool {
	switch upper := max(a.upper(), b.upper()); upper {
	case 0:
		return true
	case upperIPIP:
		return slices.ContainsFunc(ipipProtocols[:], func(n uint8) bool { return a.carries(n) && b.carries(n) && fits(uint32(n)) })
	default:
		return fits(uint32(protocolNumber(upper, v6)))
	}
}

// besideIP reports whether only packets without an IP header match.
func (m *Match) besideIP() bool { return m.MPLS != nil || m.ARP != nil }

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
	if a.IPv4 != nil || b.IPv4 != nil || a.AH != nil || b.AH != nil || a.besideIP() || b.besideIP() || !a.AdmitsEtherType(EtherIPv6) || !b.AdmitsEtherType(EtherIPv6) {
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
	// The next header is the protocol itself, or an extension header before it.
	fits := func(next uint32) bool {
		return x.NextHeader.admits(next) && y.NextHeader.admits(next) &&
			a.choiceAdmits("ipv6", "nexthdr", next) && b.choiceAdmits("ipv6", "nexthdr", next)
	}
	return meetProtocol(a, b, true, func(n uint32) bool { return fits(n) || slices.ContainsFunc(extensions, fits) })
}

// meetOther reports whether some packet without an IP header can match both.
func meetOther(a, b *Match) bool {
	if a.MPLS != nil || b.MPLS != nil {
		admits := func(typ uint16) bool { return a.AdmitsEtherType(typ) && b.AdmitsEtherType(typ) }
		if !admits(EtherMPLS) && !admits(EtherMPLSMulticast) {
			return false
		}
	}
	if a.ARP != nil || b.ARP != nil {
		if a.MPLS != nil || b.MPLS != nil || !a.AdmitsEtherType(EtherARP) || !b.AdmitsEtherType(EtherARP) {
			return false
		}
	}
	if x, y := a.ARP, b.ARP; x != nil && y != nil && !(both(x.Op, y.Op) &&
		bothBytes(x.Sender.Addr[:], x.Sender.Mask[:], y.Sender.Addr[:], y.Sender.Mask[:]) &&
		bothBytes(x.Target.Addr[:], x.Target.Mask[:], y.Target.Addr[:], y.Target.Mask[:])) {
		return false
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
	masked := Value{Value: Number{Lo: uint64(a.Value)}, Mask: Number{Lo: uint64(a.Mask)}}
	first, ok := firstFrom(16, Number{Lo: uint64(b.Value)}, masked)
	return ok && first.Lo <= uint64(b.Last)
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
		if ref == nil || !f.asks(ref) {
			return true
		}
		theirs = &Choice{Values: []Value{loadValue(ref)}}
	}
	x, sure := f.setOf(c, mostAlternatives, true)
	y, too := f.setOf(theirs, mostAlternatives, true)
	return !sure || !too || f.meetSets(x, y)
}
