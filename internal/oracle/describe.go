package oracle

import "github.com/flowtally/flowtally/dataplane/flow"

// Describe returns the headers of a packet as a match of exact values.
func Describe(p Packet) flow.Match { return parse(p).describe(true) }

// describe is Describe for parsed headers. With tunnels it describes what is inside a tunnel, too.
func (h *headers) describe(tunnels bool) (m flow.Match) {
	if e := h.eth; e != nil {
		m.Eth = &flow.Eth{Src: exactMAC(e.src), Dst: exactMAC(e.dst), Type: exact(e.typ, 16)}
	}
	for _, t := range h.tags {
		m.VLAN = append(m.VLAN, flow.VLAN{ID: exact(t.id, 12), PCP: exact(t.pcp, 3), DEI: exact(t.dei, 1)})
	}
	if e := h.mpls; e != nil {
		m.MPLS = exactEntry(e)
	}
	if h.link && h.network == 0x0806 {
		m.ARP = new(flow.ARP)
	}
	if a := h.arp; a != nil {
		m.ARP.Op = exact(a.op, 16)
		fill(m.ARP.Sender.Addr[:], m.ARP.Sender.Mask[:], a.sender)
		fill(m.ARP.Target.Addr[:], m.ARP.Target.Mask[:], a.target)
	}
	if ip := h.ip4; ip != nil {
		m.IPv4 = &flow.IPv4{
			Proto:    exact(ip.proto, 8),
			TOS:      exact(ip.tos, 8),
			TTL:      exact(ip.ttl, 8),
			Fragment: h.fragment(ip.more),
		}
		fill(m.IPv4.Src.Addr[:], m.IPv4.Src.Mask[:], ip.src)
		fill(m.IPv4.Dst.Addr[:], m.IPv4.Dst.Mask[:], ip.dst)
	}
	if ip := h.ip6; ip != nil {
		m.IPv6 = &flow.IPv6{
			FlowLabel:    exact(ip.label, 20),
			NextHeader:   exact(ip.nextHeader, 8),
			TrafficClass: exact(ip.class, 8),
			HopLimit:     exact(ip.hopLimit, 8),
			Fragment:     h.fragment(ip.more),
		}
		fill(m.IPv6.Src.Addr[:], m.IPv6.Src.Mask[:], ip.src)
		fill(m.IPv6.Dst.Addr[:], m.IPv6.Dst.Mask[:], ip.dst)
	}
	h.describeUpper(&m, tunnels)
	m.Incomplete = h.incomplete()
	return m
}

// fragment returns which fragment of a datagram the packet is. more says whether more fragments follow.
func (h *headers) fragment(more bool) flow.Fragment {
	switch {
	case h.later:
		return flow.FragmentLater
	case more:
		return flow.FragmentFirst
	}
	return flow.FragmentNo
}

// describeUpper adds the header above IP.
func (h *headers) describeUpper(m *flow.Match, tunnels bool) {
	switch {
	case h.upper == 6, h.upper == 17:
		var p flow.Ports
		if h.ports != nil {
			p.Src, p.Dst = flow.Port{Value: h.ports.src, Mask: 0xffff}, flow.Port{Value: h.ports.dst, Mask: 0xffff}
		}
		if h.upper == 6 {
			m.TCP = &flow.TCP{Ports: p}
			if h.flags != nil {
				m.TCP.Flags = flow.Masked[flow.TCPFlags]{Value: flow.TCPFlags(*h.flags), Mask: flow.TCPFlags(*h.flags) | 0xff}
			}
			return
		}
		m.UDP = &p
		if tunnels && h.ports != nil {
			h.describeUDPTunnel(m)
		}
	case h.upper == 1 && h.ip4 != nil, h.upper == 58 && h.ip6 != nil:
		m.ICMP = new(flow.ICMP)
		if h.icmp != nil {
			m.ICMP.Type, m.ICMP.Code = exact(h.icmp.typ, 8), exact(h.icmp.code, 8)
		}
	case h.upper == 132:
		m.SCTP = new(flow.SCTP)
		if h.vtag != nil {
			m.SCTP.Src, m.SCTP.Dst = flow.Port{Value: h.ports.src, Mask: 0xffff}, flow.Port{Value: h.ports.dst, Mask: 0xffff}
			m.SCTP.Tag = exact(*h.vtag, 32)
		}
	case h.upper == 51 && h.ip4 != nil:
		m.AH = new(flow.AH)
		if h.spi != nil {
			m.AH.SPI = exact(*h.spi, 32)
		}
	case h.upper == 50:
		m.ESP = new(flow.ESP)
		if h.spi != nil {
			m.ESP.SPI = exact(*h.spi, 32)
		}
	case h.upper == 47 && tunnels:
		m.GRE = new(flow.GRE)
		if g := h.gre; g != nil {
			in := g.inner.describe(false)
			m.GRE.Inner = &in
			if g.hasKey {
				m.GRE.Key = exact(g.key, 32)
			}
		}
	case (h.upper == 4 || h.upper == 41) && tunnels:
		m.IPIP = &flow.IPIP{Inner: h.ipip.describe()}
	}
}

// describeUDPTunnel adds the tunnel over UDP, known by its port.
func (h *headers) describeUDPTunnel(m *flow.Match) {
	switch h.ports.dst {
	case 4789:
		m.VXLAN = &flow.VXLAN{Inner: h.vxlan.describe()}
		if t := h.vxlan; t != nil {
			m.VXLAN.VNI = exact(t.key, 24)
		}
	case 6081:
		m.Geneve = &flow.Geneve{Inner: h.geneve.describe()}
		if t := h.geneve; t != nil {
			m.Geneve.VNI = exact(t.key, 24)
		}
	case 2152:
		m.GTPU = &flow.GTPU{Inner: h.gtpu.describe()}
		if t := h.gtpu; t != nil {
			m.GTPU.TEID = exact(t.key, 32)
		}
	case 6635:
		m.MPLSUDP = &flow.MPLSUDP{Inner: h.mplsudp.describe()}
		if t := h.mplsudp; t != nil {
			m.MPLSUDP.MPLS = *exactEntry(&t.entry)
		}
	}
}

// describe returns the headers inside the tunnel, or nil if it has no header.
func (t *tunnelHeader) describe() *flow.Match {
	if t == nil {
		return nil
	}
	in := t.inner.describe(false)
	return &in
}

func exactEntry(e *mplsHeader) *flow.MPLS {
	return &flow.MPLS{Label: exact(e.label, 20), TC: exact(e.tc, 3), Bottom: exact(e.bottom, 1), TTL: exact(e.ttl, 8)}
}

func exact[T ~uint8 | ~uint16 | ~uint32](value T, bits int) flow.Masked[T] {
	return flow.Masked[T]{Value: value, Mask: T(uint64(1)<<bits - 1)}
}

func exactMAC(b []byte) (m flow.MAC) {
	fill(m.Addr[:], m.Mask[:], b)
	return m
}

func fill(addr, mask, value []byte) {
	copy(addr, value)
	for i := range mask {
		mask[i] = 0xff
	}
}
