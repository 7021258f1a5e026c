package flow

// Evasion is a dropping flow that an attacker can evade with incomplete headers, and the match of a flow that guards it.
type Evasion struct {
	Flow  Flow
	Guard Match
}

// Unguarded returns the dropping flows that an attacker can evade with incomplete headers. A flow that drops by a header
// above Ethernet does not see that header in, for example, a packet with nine IPv6 extension headers, and lets it pass.
//
// To guard it, add a flow that drops all packets of the guard in the same direction, on the same interface or on all. The
// guard is "incomplete". A packet inside a tunnel has headers of its own: a flow that looks at these has a second guard, such
// as "geneve inner incomplete", and is returned once for each guard that is missing. The result is in the order of flows.
func Unguarded(flows []Flow) []Evasion {
	type side struct {
		direction Direction
		ifname    string
		match     string
	}
	guarding := make(map[side]bool)
	for i := range flows {
		if f := &flows[i]; f.Action == Drop && f.Match.dropsIncomplete() {
			guarding[side{f.Direction, f.Interface, f.Match.String()}] = true
		}
	}
	var out []Evasion
	for _, f := range flows {
		if f.Action != Drop {
			continue
		}
		guards := func(m Match) bool {
			text := m.String()
			return guarding[side{f.Direction, "", text}] || guarding[side{f.Direction, f.Interface, text}]
		}
		// A match on further headers is no guard: it drops only some incomplete packets.
		if guard := (Match{Incomplete: true}); f.Match.looksBehindEthernet() && !guards(guard) {
			out = append(out, Evasion{f, guard})
		}
		// The outer headers of the flow itself may be those of the guard: the guard drops what the flow would drop.
		if guard, ok := f.Match.innerGuard(); ok && !guards(guard) && !guards(f.Match.WithInner(Match{Incomplete: true})) {
			out = append(out, Evasion{f, guard})
		}
	}
	return out
}

// dropsIncomplete reports whether a match can be that of a guard.
func (m *Match) dropsIncomplete() bool {
	inner := m.Inner()
	return m.Incomplete || inner != nil && inner.Incomplete
}

// innerGuard returns the match of every packet in the tunnel of m that has incomplete headers inside. ok is false if such a
// packet cannot hide a header that m looks at.
func (m *Match) innerGuard() (guard Match, ok bool) {
	inner := m.Inner()
	if inner == nil || !inner.looksBehindEthernet() {
		return Match{}, false
	}
	for i := range clauses {
		if c := &clauses[i]; c.inner != nil && c.has(m) {
			c.add(&guard)
			*c.inner(&guard) = &Match{Incomplete: true}
		}
	}
	return guard, true
}

// looksBehindEthernet reports whether incomplete headers can hide a matched header. A match on incomplete packets is not
// affected.
func (m *Match) looksBehindEthernet() bool {
	return !m.Incomplete && (m.MPLS != nil || m.ARP != nil && *m.ARP != ARP{} || m.chooses("arp") || m.needsIP())
}
