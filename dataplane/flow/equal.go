package flow

import "slices"

// Equal reports whether two matches have the same clauses with the same values.
//
// Choices are equal if they have the same values in any order; values that others contain do not count. Those of named sets are
// equal if the names are, whatever elements the sets have.
func (m Match) Equal(other Match) bool {
	if !m.anyChoice() && !other.anyChoice() {
		return sameMatch(&m, &other)
	}
	a, b := m.canonical(), other.canonical()
	return sameMatch(&a, &b)
}

func sameMatch(m, n *Match) bool {
	if m == nil || n == nil {
		return m == n
	}
	return same(m.Eth, n.Eth) && slices.Equal(m.VLAN, n.VLAN) && m.Untagged == n.Untagged && same(m.MPLS, n.MPLS) && same(m.ARP, n.ARP) &&
		same(m.IPv4, n.IPv4) && same(m.IPv6, n.IPv6) && same(m.TCP, n.TCP) && same(m.UDP, n.UDP) &&
		same(m.SCTP, n.SCTP) && same(m.ICMP, n.ICMP) && same(m.ESP, n.ESP) && same(m.AH, n.AH) && m.Incomplete == n.Incomplete &&
		sameVXLAN(m.VXLAN, n.VXLAN) && sameGRE(m.GRE, n.GRE) && sameIPIP(m.IPIP, n.IPIP) &&
		sameGeneve(m.Geneve, n.Geneve) && sameGTPU(m.GTPU, n.GTPU) && sameMPLSUDP(m.MPLSUDP, n.MPLSUDP) &&
		slices.EqualFunc(m.Choices, n.Choices, sameChoice)
}

// same reports whether both matches lack a clause, or have it with equal values.
func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func sameVXLAN(a, b *VXLAN) bool {
	return a == b || a != nil && b != nil && a.VNI == b.VNI && sameMatch(a.Inner, b.Inner)
}

func sameGRE(a, b *GRE) bool {
	return a == b || a != nil && b != nil && a.Key == b.Key && sameMatch(a.Inner, b.Inner)
}

func sameIPIP(a, b *IPIP) bool {
	return a == b || a != nil && b != nil && sameMatch(a.Inner, b.Inner)
}

func sameGeneve(a, b *Geneve) bool {
	return a == b || a != nil && b != nil && a.VNI == b.VNI && sameMatch(a.Inner, b.Inner)
}

func sameGTPU(a, b *GTPU) bool {
	return a == b || a != nil && b != nil && a.TEID == b.TEID && sameMatch(a.Inner, b.Inner)
}

func sameMPLSUDP(a, b *MPLSUDP) bool {
	return a == b || a != nil && b != nil && a.MPLS == b.MPLS && sameMatch(a.Inner, b.Inner)
}
