package flow

import "slices"

// Equal reports whether two matches have the same clauses with the same values.
//
// Choices are equal if they have the same values in any order; values that others contain do not count.
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
	return same(m.Eth, n.Eth) && slices.Equal(m.VLAN, n.VLAN) && m.Untagged == n.Untagged && same(m.MPLS, n.MPLS) &&
		same(m.IPv4, n.IPv4) && same(m.IPv6, n.IPv6) && same(m.TCP, n.TCP) && same(m.UDP, n.UDP) &&
		same(m.ICMP, n.ICMP) && same(m.ESP, n.ESP) && m.Incomplete == n.Incomplete &&
		sameVXLAN(m.VXLAN, n.VXLAN) && sameGRE(m.GRE, n.GRE) && slices.EqualFunc(m.Choices, n.Choices, sameChoice)
}

// same reports whether both matches lack a clause, or have it with equal values.
func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func sameVXLAN(a, b *VXLAN) bool {
	return a == b || a != nil && b != nil && a.VNI == b.VNI && sameMatch(a.Inner, b.Inner)
}

func sameGRE(a, b *GRE) bool {
	return a == b || a != nil && b != nil && a.Key == b.Key && sameMatch(a.Inner, b.Inner)
}
