package flow

// The protocol numbers, EtherTypes and ports implied by the layers of a match, as assigned by IANA.
const (
	ProtoICMP   = 1
	ProtoTCP    = 6
	ProtoUDP    = 17
	ProtoGRE    = 47
	ProtoESP    = 50
	ProtoICMPv6 = 58

	EtherIPv4          = 0x0800
	EtherIPv6          = 0x86dd
	EtherMPLS          = 0x8847
	EtherMPLSMulticast = 0x8848

	PortVXLAN = 4789
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
	}
	return nil
}

// WithInner returns a shallow copy of m with another inner match. m must have VXLAN or GRE.
func (m Match) WithInner(inner Match) Match {
	if m.VXLAN != nil {
		m.VXLAN = &VXLAN{VNI: m.VXLAN.VNI, Inner: &inner}
	} else {
		m.GRE = &GRE{Key: m.GRE.Key, Inner: &inner}
	}
	return m
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
)

// upper returns the protocol above IP of the match, or 0 if it has none.
func (m *Match) upper() int {
	switch {
	case m.TCP != nil:
		return upperTCP
	case m.UDP != nil, m.VXLAN != nil:
		return upperUDP
	case m.ICMP != nil:
		return upperICMP
	case m.GRE != nil:
		return upperGRE
	case m.ESP != nil:
		return upperESP
	}
	return 0
}

// protocolNumber returns the protocol number for a result of upper.
func protocolNumber(upper int, v6 bool) uint8 {
	switch {
	case upper == upperICMP && v6:
		return ProtoICMPv6
	case upper == upperICMP:
		return ProtoICMP
	}
	return [...]uint8{upperTCP: ProtoTCP, upperUDP: ProtoUDP, upperGRE: ProtoGRE, upperESP: ProtoESP}[upper]
}
