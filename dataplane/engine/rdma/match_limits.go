package rdma

import "github.com/flowtally/flowtally/dataplane/flow"

// limits returns nil if the steering API can express exactly the packets of a match, otherwise the reason. It
// follows the table in match.go.
func limits(m flow.Match, by steeringAPI) error {
	if err := limitsOf(m, by, ""); err != nil {
		return err
	}
	if g := m.GRE; g != nil && g.Key.Mask != 0 && by == withVerbs {
		return refusal("gre key", "no spec asks that the key be there: a packet without one may look like key 0", useXDP)
	}
	in := m.Inner()
	if in == nil {
		return nil
	}
	whole := m.VXLAN != nil && m.VXLAN.VNI.Mask != 0 || m.GRE != nil && m.GRE.Key.Mask != 0 // the match asks for a field of the header
	switch {
	case !blank(*in):
	case in.Eth != nil:
		return refusal("inner eth", "no field asks that a whole Ethernet header be there", "leave \"inner\" out, or ask for a field of it")
	case !whole:
		return refusal("inner any", "no field asks for a whole header of the tunnel", "leave \"inner any\" out")
	}
	return limitsOf(*in, by, "inner ")
}

const useXDP = "leave the flow to backend auto or xdp"

// limitsOf checks one level of headers; in names it.
func limitsOf(m flow.Match, by steeringAPI, in string) error {
	noTTL, noType := "drivers refuse a mask on it", "there is no spec for it"
	if by&withDevX != 0 {
		noTTL, noType = "not every device has the field", "it takes a flex parser that is set up for ICMP (mlxconfig FLEX_PARSER_PROFILE_ENABLE=2)"
	}
	no := func(field, reason string) error { return refusal(in+field, reason, useXDP) }
	if m.Incomplete {
		return no("incomplete", "no field says that a NIC's parser stopped before the end of the headers")
	}
	if e := m.Eth; e != nil && e.Type.Mask != 0 {
		switch {
		case m.AdmitsEtherType(typeCTag) || m.AdmitsEtherType(typeSTag):
			return no("eth type", "behind two VLAN tags NICs read a third one in ways that are not documented")
		case e.Type.Value < 0x600:
			return no("eth type", "the type admits a length, and no document says how NICs read the bytes behind one")
		}
	}
	switch {
	case m.Untagged && by == withVerbs:
		return no("untagged", "the VLAN spec asks for a C-tag (0x8100), and no spec asks for the absence of a tag")
	case m.Untagged && in != "":
		return no("untagged", "no field asks that a whole Ethernet header be there")
	case len(m.VLAN) > 0 && by == withVerbs:
		return no("vlan", "the VLAN spec asks for a C-tag (0x8100), and the flow takes S-tags (0x88a8) too")
	}
	if ip := m.IPv4; ip != nil {
		switch {
		case ip.TTL.Mask != 0:
			return no("ipv4 ttl", noTTL)
		case ip.Fragment != flow.FragmentAny && by == withVerbs:
			return no("ipv4 frag", "drivers refuse a mask on the flags")
		case ip.Fragment == flow.FragmentFirst || ip.Fragment == flow.FragmentLater:
			return no("ipv4 frag "+map[flow.Fragment]string{flow.FragmentFirst: "first", flow.FragmentLater: "later"}[ip.Fragment],
				"NICs tell fragments from whole packets, and not one fragment from another")
		}
	}
	if ip := m.IPv6; ip != nil {
		switch {
		case ip.HopLimit.Mask != 0:
			return no("ipv6 hoplimit", noTTL)
		case ip.Fragment != flow.FragmentAny && by == withVerbs:
			return no("ipv6 frag", "the IPv6 spec has no such field")
		case ip.Fragment != flow.FragmentAny:
			return no("ipv6 frag", "NICs take a whole datagram with a fragment header for a fragment")
		case ip.NextHeader.Mask != 0:
			return no("ipv6 nexthdr", "NICs match the protocol behind the extension headers in its place")
		}
	}
	if i := m.ICMP; i != nil && i.Type.Mask|i.Code.Mask != 0 {
		switch {
		case by&parsesICMP == 0:
			return no("icmp type", noType)
		case in != "":
			return no("icmp type", "flex parsers look at the outer headers alone")
		case i.Type.Value|i.Code.Value == 0:
			return no("icmp type 0", "a later fragment has no type, and may look like 0")
		}
	}
	if m.MPLS != nil && in != "" {
		return no("mpls", "a NIC has other fields for labels inside GRE than inside an Ethernet frame")
	}
	if e := m.ESP; e != nil && e.SPI.Mask != 0 {
		switch {
		case e.SPI.Value == 0:
			return no("esp spi 0", "a later fragment has no SPI, and may look like SPI 0")
		case in != "" && by == withVerbs:
			return no("esp spi", "drivers look at the outer headers alone")
		}
	}
	if t := m.TCP; t != nil && t.Flags.Mask != 0 {
		switch {
		case by == withVerbs:
			return no("tcp flags", "the TCP spec has no flags")
		case t.Flags.Mask&^0x1ff != 0:
			return no("tcp flags", "NICs have no field for the reserved bits")
		case t.Flags.Value == 0 && (t.Ports == flow.Ports{} || mayBeZero(t.Ports)):
			return no("tcp flags", "a later fragment has no flags, and may look like a packet without any")
		case t.Flags.Value != 0:
			return nil // a packet with a flag has ports
		}
	}
	if p := m.TCP; p != nil && mayBeZero(p.Ports) || m.UDP != nil && m.VXLAN == nil && mayBeZero(*m.UDP) {
		return no("port 0", "a later fragment has no ports, and may look like port 0")
	}
	return nil
}

// mayBeZero reports whether the match names ports and all of them may be 0.
func mayBeZero(p flow.Ports) bool {
	zero := func(p flow.Port) bool { return p.Value == 0 }
	none := flow.Port{}
	return (p.Src != none || p.Dst != none) && zero(p.Src) && zero(p.Dst)
}

// blank reports whether a match asks for no more than a frame.
func blank(m flow.Match) bool {
	return !m.Incomplete && (m.Eth == nil || *m.Eth == flow.Eth{}) && len(m.VLAN) == 0 && !m.Untagged && m.MPLS == nil && m.IPv4 == nil && m.IPv6 == nil && !needsIP(m)
}
