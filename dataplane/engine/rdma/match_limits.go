package rdma

import (
	"cmp"
	"fmt"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// limits returns why the steering API cannot express a match exactly, or nil. It follows the table in match.go.
func limits(m flow.Match, by steeringAPI) error {
	if err := limitsOf(m, by, ""); err != nil {
		return err
	}
	if g := m.GRE; g != nil && g.Key.Mask != 0 && by == withVerbs {
		return refusal("gre key", "no spec asks that the key be there: a packet without one may look like key 0", useXDP)
	}
	if err := flexTunnel(m, by); err != nil {
		return err
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

// flexTunnel returns the reason against the tunnels that NICs parse by a flex parser, or nil if the match asks for nothing of
// their headers or inside: then the protocol or the port decides. A device has one profile of flex parsers, and says in no
// capability how it treats versions, options and extension headers.
func flexTunnel(m flow.Match, by steeringAPI) error {
	const noSpec = "there is no spec for it"
	parser := func(of, profile string) string {
		return fmt.Sprintf("it takes a flex parser that is set up for %s (mlxconfig FLEX_PARSER_PROFILE_ENABLE=%s), whose checks are not documented", of, profile)
	}
	switch {
	case m.IPIP != nil && m.IPIP.Inner != nil:
		return refusal("ipip inner", parser("IP in IP", "0"), useXDP)
	case m.Geneve != nil && *m.Geneve != flow.Geneve{}:
		if by == withVerbs {
			return refusal("geneve", noSpec, useXDP)
		}
		return refusal("geneve", parser("Geneve", "0 or 1"), useXDP)
	case m.GTPU != nil && *m.GTPU != flow.GTPU{}:
		if by == withVerbs {
			return refusal("gtpu", noSpec, useXDP)
		}
		return refusal("gtpu", parser("GTP-U", "3"), useXDP)
	case m.MPLSUDP != nil && *m.MPLSUDP != flow.MPLSUDP{}:
		return refusal("mplsudp", parser("MPLS", "1"), useXDP)
	}
	return nil
}

const useXDP = "leave the flow to backend auto or xdp"

// limitsOf checks the outer or the inner headers. It returns the reason against the first header, from the outside in.
func limitsOf(m flow.Match, by steeringAPI, in string) error {
	l := headerLevel{m, by, in}
	return cmp.Or(l.incomplete(), l.eth(), l.tags(), l.ipv4(), l.ipv6(), l.icmp(), l.mpls(), l.arp(), l.esp(), l.ah(), l.sctp(), l.tcp(), l.udp())
}

// headerLevel is the outer or the inner headers of a match. Each method returns the reason against one header, or nil.
type headerLevel struct {
	m  flow.Match
	by steeringAPI
	in string // "inner ", or "" for the outer headers
}

func (l headerLevel) refuse(field, reason string) error { return refusal(l.in+field, reason, useXDP) }

func (l headerLevel) incomplete() error {
	if l.m.Incomplete {
		return l.refuse("incomplete", "no field says that a NIC's parser stopped before the end of the headers")
	}
	return nil
}

func (l headerLevel) eth() error {
	e := l.m.Eth
	switch {
	case e == nil || e.Type.Mask == 0:
		return nil
	case l.m.AdmitsEtherType(typeCTag) || l.m.AdmitsEtherType(typeSTag):
		return l.refuse("eth type", "behind two VLAN tags NICs read a third one in ways that are not documented")
	case e.Type.Value < 0x600:
		return l.refuse("eth type", "the type admits a length, and no document says how NICs read the bytes behind one")
	}
	return nil
}

func (l headerLevel) tags() error {
	switch {
	case l.m.Untagged && l.by == withVerbs:
		return l.refuse("untagged", "the VLAN spec asks for a C-tag (0x8100), and no spec asks for the absence of a tag")
	case l.m.Untagged && l.in != "":
		return l.refuse("untagged", "no field asks that a whole Ethernet header be there")
	case len(l.m.VLAN) > 0 && l.by == withVerbs:
		return l.refuse("vlan", "the VLAN spec asks for a C-tag (0x8100), and the flow takes S-tags (0x88a8) too")
	}
	return nil
}

// noTTL returns the reason against TTL and hop limit.
func (l headerLevel) noTTL() string {
	if l.by&withDevX != 0 {
		return "not every device has the field"
	}
	return "drivers refuse a mask on it"
}

func (l headerLevel) ipv4() error {
	ip := l.m.IPv4
	if ip == nil {
		return nil
	}
	switch {
	case ip.TTL.Mask != 0:
		return l.refuse("ipv4 ttl", l.noTTL())
	case ip.Fragment != flow.FragmentAny && l.by == withVerbs:
		return l.refuse("ipv4 frag", "drivers refuse a mask on the flags")
	case ip.Fragment == flow.FragmentFirst:
		return l.refuse("ipv4 frag first", oneKindOfFragment)
	case ip.Fragment == flow.FragmentLater:
		return l.refuse("ipv4 frag later", oneKindOfFragment)
	}
	return nil
}

const oneKindOfFragment = "NICs tell fragments from whole packets, and not one fragment from another"

func (l headerLevel) ipv6() error {
	ip := l.m.IPv6
	if ip == nil {
		return nil
	}
	switch {
	case ip.HopLimit.Mask != 0:
		return l.refuse("ipv6 hoplimit", l.noTTL())
	case ip.Fragment != flow.FragmentAny && l.by == withVerbs:
		return l.refuse("ipv6 frag", "the IPv6 spec has no such field")
	case ip.Fragment != flow.FragmentAny:
		return l.refuse("ipv6 frag", "NICs take a whole datagram with a fragment header for a fragment")
	case ip.NextHeader.Mask != 0:
		return l.refuse("ipv6 nexthdr", "NICs match the protocol behind the extension headers in its place")
	}
	return nil
}

func (l headerLevel) icmp() error {
	i := l.m.ICMP
	switch {
	case i == nil || i.Type.Mask|i.Code.Mask == 0:
		return nil
	case l.by&withDevX == 0:
		return l.refuse("icmp type", "there is no spec for it")
	case l.by&parsesICMP == 0:
		return l.refuse("icmp type", "it takes a flex parser that is set up for ICMP (mlxconfig FLEX_PARSER_PROFILE_ENABLE=2)")
	case l.in != "":
		return l.refuse("icmp type", "flex parsers look at the outer headers alone")
	case i.Type.Value|i.Code.Value == 0:
		return l.refuse("icmp type 0", "a later fragment has no type, and may look like 0")
	}
	return nil
}

func (l headerLevel) mpls() error {
	if l.m.MPLS != nil && l.in != "" {
		return l.refuse("mpls", "a NIC has other fields for labels inside GRE than inside an Ethernet frame")
	}
	return nil
}

// noField returns the reason against a header that NICs know by its number alone.
func (l headerLevel) noField() string {
	if l.by&withDevX != 0 {
		return "NICs have no field for it"
	}
	return "there is no spec for it"
}

func (l headerLevel) arp() error {
	a := l.m.ARP
	switch {
	case a == nil || *a == flow.ARP{}:
		return nil
	case a.Op.Mask != 0:
		return l.refuse("arp op", l.noField())
	}
	return l.refuse("arp address", l.noField())
}

func (l headerLevel) ah() error {
	if l.m.AH == nil || l.m.AH.SPI.Mask == 0 {
		return nil
	}
	return l.refuse("ah spi", l.noField())
}

func (l headerLevel) sctp() error {
	s := l.m.SCTP
	switch {
	case s == nil || *s == flow.SCTP{}:
		return nil
	case s.Tag.Mask != 0:
		return l.refuse("sctp vtag", l.noField())
	}
	return l.refuse("sctp port", l.noField())
}

func (l headerLevel) esp() error {
	e := l.m.ESP
	switch {
	case e == nil || e.SPI.Mask == 0:
		return nil
	case e.SPI.Value == 0:
		return l.refuse("esp spi 0", "a later fragment has no SPI, and may look like SPI 0")
	case l.in != "" && l.by == withVerbs:
		return l.refuse("esp spi", "drivers look at the outer headers alone")
	}
	return nil
}

func (l headerLevel) tcp() error {
	t := l.m.TCP
	switch {
	case t == nil:
		return nil
	case t.Flags.Mask == 0:
		return l.ports(t.Ports)
	case l.by == withVerbs:
		return l.refuse("tcp flags", "the TCP spec has no flags")
	case t.Flags.Mask&^0x1ff != 0:
		return l.refuse("tcp flags", "NICs have no field for the reserved bits")
	case t.Flags.Value != 0:
		return nil // a packet with a flag has ports, so they may be 0
	case t.Ports == flow.Ports{} || mayBeZero(t.Ports):
		return l.refuse("tcp flags", "a later fragment has no flags, and may look like a packet without any")
	}
	return l.ports(t.Ports)
}

// udp has nothing against a tunnel over UDP, whose port is not 0.
func (l headerLevel) udp() error {
	if l.m.UDP == nil || l.m.TunnelPort() != 0 {
		return nil
	}
	return l.ports(*l.m.UDP)
}

func (l headerLevel) ports(p flow.Ports) error {
	if mayBeZero(p) {
		return l.refuse("port 0", "a later fragment has no ports, and may look like port 0")
	}
	return nil
}

// mayBeZero reports whether a match names ports, but admits 0 for all of them. NICs may read that 0 from a later fragment, which
// has no ports.
func mayBeZero(p flow.Ports) bool {
	zero := func(p flow.Port) bool { return p.Value == 0 }
	none := flow.Port{}
	return (p.Src != none || p.Dst != none) && zero(p.Src) && zero(p.Dst)
}

// blank reports whether a match asks for nothing that a field could express.
func blank(m flow.Match) bool {
	if m.Eth != nil && *m.Eth != (flow.Eth{}) {
		return false
	}
	return !m.Incomplete &&
		len(m.VLAN) == 0 &&
		!m.Untagged &&
		m.MPLS == nil &&
		m.ARP == nil &&
		m.IPv4 == nil &&
		m.IPv6 == nil &&
		!needsIP(m)
}
