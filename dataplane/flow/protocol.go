package flow

// The protocol numbers, EtherTypes and ports implied by the layers of a match, as assigned by IANA.
const (
	ProtoICMP   = 1
	ProtoIPIP   = 4 // IPv4 inside
	ProtoTCP    = 6
	ProtoUDP    = 17
	ProtoIPv6   = 41 // IPv6 inside
	ProtoGRE    = 47
	ProtoESP    = 50
	ProtoAH     = 51
	ProtoICMPv6 = 58
	ProtoSCTP   = 132

	EtherIPv4          = 0x0800
	EtherARP           = 0x0806
	EtherIPv6          = 0x86dd
	EtherMPLS          = 0x8847
	EtherMPLSMulticast = 0x8848

	PortGTPU    = 2152
	PortVXLAN   = 4789
	PortGeneve  = 6081
	PortMPLSUDP = 6635
)

// extensions has the next-header numbers of the IPv6 extension headers that the backends skip.
var extensions = []uint32{0, 43, 44, 51, 60, 135, 139, 140}

// Inner returns the match on the headers inside the tunnel, or nil if m has none.
func (m *Match) Inner() *Match {
	switch {
	case m.VXLAN != nil:
		return m.VXLAN.Inner
	case m.GRE != nil:
		return m.GRE.Inner
	case m.IPIP != nil:
		return m.IPIP.Inner
	case m.Geneve != nil:
		return m.Geneve.Inner
	case m.GTPU != nil:
		return m.GTPU.Inner
	case m.MPLSUDP != nil:
		return m.MPLSUDP.Inner
	}
	return nil
}

// WithInner returns a shallow copy of m with another inner match. m must have a tunnel.
func (m Match) WithInner(inner Match) Match {
	switch {
	case m.VXLAN != nil:
		m.VXLAN = &VXLAN{VNI: m.VXLAN.VNI, Inner: &inner}
	case m.GRE != nil:
		m.GRE = &GRE{Key: m.GRE.Key, Inner: &inner}
	case m.IPIP != nil:
		m.IPIP = &IPIP{Inner: &inner}
	case m.Geneve != nil:
		m.Geneve = &Geneve{VNI: m.Geneve.VNI, Inner: &inner}
	case m.GTPU != nil:
		m.GTPU = &GTPU{TEID: m.GTPU.TEID, Inner: &inner}
	case m.MPLSUDP != nil:
		m.MPLSUDP = &MPLSUDP{MPLS: m.MPLSUDP.MPLS, Inner: &inner}
	}
	return m
}

// TunnelPort returns the destination port that the tunnel of m implies, or 0 if m has no tunnel over UDP.
func (m *Match) TunnelPort() uint16 {
	switch {
	case m.VXLAN != nil:
		return PortVXLAN
	case m.Geneve != nil:
		return PortGeneve
	case m.GTPU != nil:
		return PortGTPU
	case m.MPLSUDP != nil:
		return PortMPLSUDP
	}
	return 0
}

// IPIPProtocols returns the protocol numbers of the packets that can match IPIP: of IPv4 inside, of IPv6 inside, or both. It
// returns none if m does not match IPIP.
func (m *Match) IPIPProtocols() []uint8 {
	var numbers []uint8
	for _, n := range ipipProtocols {
		if m.IPIP != nil && m.carries(n) && (m.IPv4 == nil || m.IPv4.Proto.admits(uint32(n))) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// ipipProtocols has the protocol numbers of IP inside IP.
var ipipProtocols = [...]uint8{ProtoIPIP, ProtoIPv6}

// carries reports whether an IPIP match admits IP inside that is announced by protocol n. The packet inside may be cut, so only a
// match on its IP header tells.
func (m *Match) carries(n uint8) bool {
	if m.IPIP == nil || m.IPIP.Inner == nil {
		return true
	}
	in := m.IPIP.Inner
	switch {
	case in.IPv4 != nil && in.IPv6 == nil:
		return n == ProtoIPIP
	case in.IPv6 != nil && in.IPv4 == nil:
		return n == ProtoIPv6
	}
	return true
}

// AdmitsEtherType reports whether Eth.Type, or a choice in its place, allows this EtherType.
func (m *Match) AdmitsEtherType(typ uint16) bool {
	return (m.Eth == nil || typ&m.Eth.Type.Mask == m.Eth.Type.Value) && m.choiceAdmits("eth", "type", uint32(typ))
}

// The protocols above IP, numbered alike for IPv4 and IPv6. For ICMP the protocol numbers differ.
const (
	upperTCP = iota + 1
	upperUDP
	upperICMP
	upperGRE
	upperESP
	upperIPIP // two protocol numbers, see [Match.IPIPProtocols]
	upperSCTP
	upperAH // over IPv4 alone
)

// upper returns the protocol above IP of the match, or 0 if it has none.
func (m *Match) upper() int {
	switch {
	case m.TCP != nil:
		return upperTCP
	case m.UDP != nil, m.TunnelPort() != 0:
		return upperUDP
	case m.ICMP != nil:
		return upperICMP
	case m.GRE != nil:
		return upperGRE
	case m.ESP != nil:
		return upperESP
	case m.IPIP != nil:
		return upperIPIP
	case m.SCTP != nil:
		return upperSCTP
	case m.AH != nil:
		return upperAH
	}
	return 0
}

// protocolNumber returns the protocol number for a result of upper other than upperIPIP.
func protocolNumber(upper int, v6 bool) uint8 {
	switch {
	case upper == upperICMP && v6:
		return ProtoICMPv6
	case upper == upperICMP:
		return ProtoICMP
	}
	return [...]uint8{
		upperTCP: ProtoTCP, upperUDP: ProtoUDP, upperGRE: ProtoGRE, upperESP: ProtoESP, upperSCTP: ProtoSCTP, upperAH: ProtoAH,
	}[upper]
}
