package flow

import (
	"fmt"
	"slices"
	"strconv"
)

// checkLayers reports link and network layers that exclude one another.
func (m *Match) checkLayers(bad func(field, cause, fix string)) {
	if m.IPv4 != nil && m.IPv6 != nil {
		bad("ipv6", "the match asks for ipv4 and ipv6 at once", "make two flows of it")
	}
	if m.MPLS != nil && m.needsIP() {
		bad("mpls", "headers behind an MPLS label are not looked at", "leave mpls out, or the clauses of IP and above it")
	}
	if m.ARP != nil && (m.MPLS != nil || m.needsIP()) {
		bad("arp", "the match asks for arp, and for another protocol above Ethernet", "make two flows of it")
	}
	if m.Untagged && len(m.VLAN) > 0 {
		bad(wordUntagged, "the match asks for a VLAN tag and for none", "make two flows of it")
	}
	if m.Eth == nil {
		return
	}
	implied := m.etherTypes()
	if len(implied) == 0 {
		return
	}
	if slices.ContainsFunc(implied, func(t uint32) bool { return m.AdmitsEtherType(uint16(t)) }) {
		return
	}
	const leaveOut = `leave "type" out: they ask for it themselves`
	if m.chooses("eth", "type") {
		bad("eth.type", "it excludes the type of the protocols that the match asks for", leaveOut)
		return
	}
	bad("eth.type", fmt.Sprintf("%#04x is not the type of the protocols that the match asks for", m.Eth.Type.Value), leaveOut)
}

// etherTypes returns the EtherTypes of packets that have the layers of the match, or nil for any.
func (m *Match) etherTypes() []uint32 {
	switch {
	case m.IPv4 != nil && m.IPv6 != nil:
		return nil // checkLayers has reported it
	case m.IPv4 != nil:
		return []uint32{EtherIPv4}
	case m.IPv6 != nil:
		return []uint32{EtherIPv6}
	case m.MPLS != nil && !m.needsIP():
		return []uint32{EtherMPLS, EtherMPLSMulticast}
	case m.upper() != 0:
		return []uint32{EtherIPv4, EtherIPv6}
	case m.ARP != nil:
		return []uint32{EtherARP}
	}
	return nil
}

// checkUpper reports protocols above IP that exclude one another, or contradict a field of the IP header.
func (m *Match) checkUpper(bad func(field, cause, fix string)) {
	first := ""
	for i := range clauses {
		c := &clauses[i]
		switch c.name {
		case "tcp", "udp", "sctp", "icmp", "esp", "ah":
		default:
			if c.inner == nil {
				continue
			}
		}
		switch {
		case !c.has(m):
		case first == "", first == "udp" && overUDP(c.name):
			first = c.name
		default:
			bad(c.name, fmt.Sprintf("the match asks for %s and %s at once", first, c.name), "make two flows of it")
		}
	}
	if p, port := m.UDP, m.TunnelPort(); p != nil && port != 0 && !(p.Dst.holds(port) && m.choiceAdmits("udp", "dport", uint32(port))) {
		bad("udp.dport", fmt.Sprintf("%s is looked for at destination port %d only", first, port), `leave "dport" out`)
	}
	m.checkInside(bad)
	switch {
	case m.AH != nil && m.IPv6 != nil:
		bad("ah", "behind IPv6 an AH is an extension header, and its SPI has no place in the key of a packet",
			`write "ipv6 nexthdr ah" for an AH directly behind IPv6`)
	case m.AH != nil && m.IPv4 == nil:
		bad("ah", "it is looked for behind IPv4 alone", `write "ipv4 ah"`)
	}
	if m.IPv4 != nil {
		m.checkIPv4(bad, first)
	}
	if m.IPv6 != nil {
		m.checkIPv6(bad, first)
	}
}

// checkInside reports link layers inside a tunnel that carries IP alone.
func (m *Match) checkInside(bad func(field, cause, fix string)) {
	in := m.Inner()
	if in == nil || m.VXLAN != nil || m.GRE != nil || m.Geneve != nil {
		return
	}
	if in.Eth != nil || len(in.VLAN) > 0 || in.Untagged || in.MPLS != nil || in.ARP != nil {
		name := ""
		for i := range clauses {
			if c := &clauses[i]; c.inner != nil && c.has(m) {
				name = c.name
			}
		}
		bad(name+"."+wordInner, fmt.Sprintf("only IP is looked for inside %s", name), "leave eth, vlan, untagged, mpls and arp out")
	}
}

func (m *Match) checkIPv4(bad func(field, cause, fix string), upper string) {
	admits := func(n uint32) bool { return m.IPv4.Proto.admits(n) && m.choiceAdmits("ipv4", "proto", n) }
	if upper != "" && !slices.ContainsFunc(m.protocolsOver(upper, false), admits) {
		bad("ipv4.proto", fmt.Sprintf("%s is protocol %s", upper, orOf(m.protocolsOver(upper, false))), `leave "proto" out`)
	}
	m.checkLater(bad, "ipv4.frag", m.IPv4.Fragment)
}

func (m *Match) checkIPv6(bad func(field, cause, fix string), upper string) {
	admits := func(n uint32) bool { return m.IPv6.NextHeader.admits(n) && m.choiceAdmits("ipv6", "nexthdr", n) }
	extension := slices.ContainsFunc(extensions, admits)
	if upper != "" && !slices.ContainsFunc(m.protocolsOver(upper, true), admits) && !extension {
		bad("ipv6.nexthdr", fmt.Sprintf("neither %s nor an extension header has this number", upper), `leave "nexthdr" out`)
	}
	if m.IPv6.Fragment.only() && !extension {
		bad("ipv6.frag", "a fragment has an extension header, and no extension header has the number of nexthdr", `leave "nexthdr" out`)
	}
	m.checkLater(bad, "ipv6.frag", m.IPv6.Fragment)
}

// checkLater reports matches on later fragments and on a header that only the first fragment has.
func (m *Match) checkLater(bad func(field, cause, fix string), field string, f Fragment) {
	if f == FragmentLater && m.looksAbove() {
		bad(field, "a later fragment does not hold the header that the match looks at", `write "frag first" or leave "frag" out`)
	}
}

// checkIncomplete reports clauses that packets with incomplete headers never match.
func (m *Match) checkIncomplete(bad func(field, cause, fix string)) {
	switch {
	case !m.Incomplete:
	case m.completeAbove() || m.GRE != nil || m.IPIP != nil || m.MPLS != nil || m.ARP != nil && *m.ARP != ARP{} || m.chooses("arp"):
		bad(wordIncomplete, "the match looks at a header that is not there when the headers are incomplete", "make two flows of it")
	case m.fragment() == FragmentLater:
		bad(wordIncomplete, "a later fragment has no header above IP, and so is never incomplete", "make two flows of it")
	}
}

// looksAbove reports whether the match needs the contents of a header above IP, not just its protocol number.
func (m *Match) looksAbove() bool {
	return m.TCP != nil && m.TCP.Ports != Ports{} || m.chooses("tcp", "sport", "dport") || m.completeAbove()
}

// completeAbove reports whether only packets with complete headers above IP can match. TCP ports alone do not count: a
// packet may end between the ports and the flags.
func (m *Match) completeAbove() bool {
	return m.TCP != nil && m.TCP.Flags.Mask != 0 || m.UDP != nil && *m.UDP != Ports{} || m.ICMP != nil && *m.ICMP != ICMP{} ||
		m.ESP != nil && *m.ESP != ESP{} || m.AH != nil && *m.AH != AH{} || m.SCTP != nil && *m.SCTP != SCTP{} || m.TunnelPort() != 0 ||
		m.GRE != nil && *m.GRE != GRE{} || m.IPIP != nil && m.IPIP.Inner != nil ||
		m.chooses("tcp", "flags") || m.chooses("udp") || m.chooses("icmp") || m.chooses("esp") || m.chooses("gre") ||
		m.chooses("ah") || m.chooses("sctp")
}

// needsIP reports whether only IP packets can match.
func (m *Match) needsIP() bool { return m.IPv4 != nil || m.IPv6 != nil || m.upper() != 0 }

// fragment returns the Fragment of the IPv4 or IPv6 layer.
func (m *Match) fragment() Fragment {
	switch {
	case m.IPv4 != nil:
		return m.IPv4.Fragment
	case m.IPv6 != nil:
		return m.IPv6.Fragment
	}
	return FragmentAny
}

// only reports whether the kind excludes whole datagrams.
func (f Fragment) only() bool { return f >= FragmentYes }

// overUDP reports whether a clause is a tunnel over UDP.
func overUDP(clause string) bool {
	switch clause {
	case "vxlan", "geneve", "gtpu", "mplsudp":
		return true
	}
	return false
}

// protocolsOver returns the protocol numbers of a clause over IPv4 or IPv6. Only IP in IP has two.
func (m *Match) protocolsOver(clause string, v6 bool) []uint32 {
	switch clause {
	case "tcp":
		return []uint32{ProtoTCP}
	case "icmp":
		if v6 {
			return []uint32{ProtoICMPv6}
		}
		return []uint32{ProtoICMP}
	case "gre":
		return []uint32{ProtoGRE}
	case "esp":
		return []uint32{ProtoESP}
	case "ipip":
		var numbers []uint32
		for _, n := range ipipProtocols {
			if m.carries(n) {
				numbers = append(numbers, uint32(n))
			}
		}
		return numbers
	case "ah":
		return []uint32{ProtoAH}
	case "sctp":
		return []uint32{ProtoSCTP}
	}
	return []uint32{ProtoUDP} // udp, and the tunnels over it
}

// orOf writes "4 or 41".
func orOf(numbers []uint32) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.FormatUint(uint64(n), 10)
	}
	return oneOf(words)
}

// admits reports whether f matches v.
func (f Masked[T]) admits(v uint32) bool { return v&uint32(f.Mask) == uint32(f.Value) }

// holds reports whether p matches v.
func (p Port) holds(v uint16) bool {
	if p.Last != 0 {
		return p.Value <= v && v <= p.Last
	}
	return v&p.Mask == p.Value
}
