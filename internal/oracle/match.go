package oracle

import "github.com/flowtally/flowtally/dataplane/flow"

// matches reports whether a packet with these headers has every layer of a match.
func matches(m *flow.Match, h *headers, sets sets) bool {
	return matchEth(m, h) &&
		matchVLAN(m, h) &&
		matchMPLS(m, h) &&
		matchARP(m, h) &&
		matchIPv4(m, h) &&
		matchIPv6(m, h) &&
		matchTCP(m, h) &&
		matchUDP(m, h) &&
		matchSCTP(m, h) &&
		matchICMP(m, h) &&
		matchESP(m, h) &&
		matchAH(m, h) &&
		matchVXLAN(m, h, sets) &&
		matchGRE(m, h, sets) &&
		matchIPIP(m, h, sets) &&
		matchGeneve(m, h, sets) &&
		matchGTPU(m, h, sets) &&
		matchMPLSUDP(m, h, sets) &&
		matchChoices(m, h, sets) &&
		(!m.Incomplete || h.incomplete())
}

func matchEth(m *flow.Match, h *headers) bool {
	if m.Eth == nil {
		return true
	}
	return h.eth != nil &&
		bytesMatch(h.eth.src, m.Eth.Src.Addr[:], m.Eth.Src.Mask[:]) &&
		bytesMatch(h.eth.dst, m.Eth.Dst.Addr[:], m.Eth.Dst.Mask[:]) &&
		fieldMatch(h.eth.typ, m.Eth.Type)
}

func matchVLAN(m *flow.Match, h *headers) bool {
	if len(m.VLAN) > len(h.tags) || m.Untagged && (h.eth == nil || len(h.tags) > 0) {
		return false
	}
	for i, want := range m.VLAN {
		tag := h.tags[i]
		if !fieldMatch(tag.id, want.ID) || !fieldMatch(tag.pcp, want.PCP) || !fieldMatch(tag.dei, want.DEI) {
			return false
		}
	}
	return true
}

func matchMPLS(m *flow.Match, h *headers) bool {
	return m.MPLS == nil || matchEntry(m.MPLS, h.mpls)
}

func matchEntry(want *flow.MPLS, e *mplsHeader) bool {
	return e != nil &&
		fieldMatch(e.label, want.Label) &&
		fieldMatch(e.tc, want.TC) &&
		fieldMatch(e.bottom, want.Bottom) &&
		fieldMatch(e.ttl, want.TTL)
}

func matchARP(m *flow.Match, h *headers) bool {
	want, a := m.ARP, h.arp
	switch {
	case want == nil:
		return true
	case *want == flow.ARP{}:
		return h.link && h.network == 0x0806
	}
	return a != nil &&
		fieldMatch(a.op, want.Op) &&
		bytesMatch(a.sender, want.Sender.Addr[:], want.Sender.Mask[:]) &&
		bytesMatch(a.target, want.Target.Addr[:], want.Target.Mask[:])
}

func matchIPv4(m *flow.Match, h *headers) bool {
	want, ip := m.IPv4, h.ip4
	if want == nil {
		return true
	}
	return ip != nil &&
		bytesMatch(ip.src, want.Src.Addr[:], want.Src.Mask[:]) &&
		bytesMatch(ip.dst, want.Dst.Addr[:], want.Dst.Mask[:]) &&
		fieldMatch(ip.proto, want.Proto) &&
		fieldMatch(ip.tos, want.TOS) &&
		fieldMatch(ip.ttl, want.TTL) &&
		matchFragment(want.Fragment, ip.more, h.later)
}

// matchFragment compares which fragment of a datagram the packet is. more: further fragments follow. later: its offset is
// above 0.
func matchFragment(want flow.Fragment, more, later bool) bool {
	switch want {
	case flow.FragmentNo:
		return !more && !later
	case flow.FragmentYes:
		return more || later
	case flow.FragmentFirst:
		return more && !later
	case flow.FragmentLater:
		return later
	}
	return true
}

func matchIPv6(m *flow.Match, h *headers) bool {
	want, ip := m.IPv6, h.ip6
	if want == nil {
		return true
	}
	return ip != nil &&
		bytesMatch(ip.src, want.Src.Addr[:], want.Src.Mask[:]) &&
		bytesMatch(ip.dst, want.Dst.Addr[:], want.Dst.Mask[:]) &&
		fieldMatch(ip.label, want.FlowLabel) &&
		fieldMatch(ip.nextHeader, want.NextHeader) &&
		fieldMatch(ip.class, want.TrafficClass) &&
		fieldMatch(ip.hopLimit, want.HopLimit) &&
		matchFragment(want.Fragment, ip.more, h.later)
}

func matchTCP(m *flow.Match, h *headers) bool {
	if m.TCP == nil {
		return true
	}
	return h.upper == 6 && matchPorts(&m.TCP.Ports, h.ports) &&
		(m.TCP.Flags.Mask == 0 || h.flags != nil && fieldMatch(flow.TCPFlags(*h.flags), m.TCP.Flags))
}

func matchUDP(m *flow.Match, h *headers) bool {
	return m.UDP == nil || h.upper == 17 && matchPorts(m.UDP, h.ports)
}

func matchSCTP(m *flow.Match, h *headers) bool {
	want := m.SCTP
	switch {
	case want == nil:
		return true
	case h.upper != 132:
		return false
	case *want == flow.SCTP{}:
		return true
	}
	return h.vtag != nil && matchPorts(&want.Ports, h.ports) && fieldMatch(*h.vtag, want.Tag)
}

func matchPorts(want *flow.Ports, ports *portsHeader) bool {
	if *want == (flow.Ports{}) {
		return true
	}
	return ports != nil && portMatch(ports.src, want.Src) && portMatch(ports.dst, want.Dst)
}

func portMatch(port uint16, want flow.Port) bool {
	if want.Last != 0 {
		return want.Value <= port && port <= want.Last
	}
	return port&want.Mask == want.Value
}

func matchICMP(m *flow.Match, h *headers) bool {
	if m.ICMP == nil {
		return true
	}
	if !(h.ip4 != nil && h.upper == 1) && !(h.ip6 != nil && h.upper == 58) {
		return false
	}
	if *m.ICMP == (flow.ICMP{}) {
		return true
	}
	return h.icmp != nil && fieldMatch(h.icmp.typ, m.ICMP.Type) && fieldMatch(h.icmp.code, m.ICMP.Code)
}

func matchESP(m *flow.Match, h *headers) bool {
	if m.ESP == nil {
		return true
	}
	return h.upper == 50 && (m.ESP.SPI.Mask == 0 || h.spi != nil && fieldMatch(*h.spi, m.ESP.SPI))
}

func matchAH(m *flow.Match, h *headers) bool {
	if m.AH == nil {
		return true
	}
	return h.ip4 != nil && h.upper == 51 && (m.AH.SPI.Mask == 0 || h.spi != nil && fieldMatch(*h.spi, m.AH.SPI))
}

func matchVXLAN(m *flow.Match, h *headers, sets sets) bool {
	want := m.VXLAN
	switch {
	case want == nil:
		return true
	case !h.udpTo(4789):
		return false
	case want.VNI.Mask == 0 && want.Inner == nil:
		return true
	}
	return h.vxlan != nil && fieldMatch(h.vxlan.key, want.VNI) &&
		(want.Inner == nil || matches(want.Inner, h.vxlan.inner, sets))
}

func matchGRE(m *flow.Match, h *headers, sets sets) bool {
	want := m.GRE
	switch {
	case want == nil:
		return true
	case h.upper != 47:
		return false
	case want.Key.Mask == 0 && want.Inner == nil:
		return true
	case h.gre == nil:
		return false
	case want.Key.Mask != 0 && (!h.gre.hasKey || !fieldMatch(h.gre.key, want.Key)):
		return false
	}
	return want.Inner == nil || matches(want.Inner, h.gre.inner, sets)
}

func matchIPIP(m *flow.Match, h *headers, sets sets) bool {
	want := m.IPIP
	switch {
	case want == nil:
		return true
	case h.upper != 4 && h.upper != 41:
		return false
	case want.Inner == nil:
		return true
	}
	return h.ipip != nil && matches(want.Inner, h.ipip.inner, sets)
}

func matchGeneve(m *flow.Match, h *headers, sets sets) bool {
	want := m.Geneve
	switch {
	case want == nil:
		return true
	case !h.udpTo(6081):
		return false
	case want.VNI.Mask == 0 && want.Inner == nil:
		return true
	}
	return h.geneve != nil && fieldMatch(h.geneve.key, want.VNI) &&
		(want.Inner == nil || matches(want.Inner, h.geneve.inner, sets))
}

func matchGTPU(m *flow.Match, h *headers, sets sets) bool {
	want := m.GTPU
	switch {
	case want == nil:
		return true
	case !h.udpTo(2152):
		return false
	case want.TEID.Mask == 0 && want.Inner == nil:
		return true
	}
	return h.gtpu != nil && fieldMatch(h.gtpu.key, want.TEID) &&
		(want.Inner == nil || matches(want.Inner, h.gtpu.inner, sets))
}

func matchMPLSUDP(m *flow.Match, h *headers, sets sets) bool {
	want := m.MPLSUDP
	switch {
	case want == nil:
		return true
	case !h.udpTo(6635):
		return false
	case want.MPLS == flow.MPLS{} && want.Inner == nil:
		return true
	}
	return h.mplsudp != nil && matchEntry(&want.MPLS, &h.mplsudp.entry) &&
		(want.Inner == nil || matches(want.Inner, h.mplsudp.inner, sets))
}

// udpTo reports whether the packet is UDP to a port.
func (h *headers) udpTo(port uint16) bool {
	return h.upper == 17 && h.ports != nil && h.ports.dst == port
}

func fieldMatch[T ~uint8 | ~uint16 | ~uint32](field T, want flow.Masked[T]) bool {
	return field&want.Mask == want.Value
}

func bytesMatch(field, value, mask []byte) bool {
	for i := range field {
		if field[i]&mask[i] != value[i] {
			return false
		}
	}
	return true
}
