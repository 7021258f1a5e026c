package flow

// Unguarded returns the dropping flows that an attacker can evade with incomplete headers. A flow that drops by a header
// above Ethernet does not see that header in, for example, a packet with nine IPv6 extension headers, and lets it pass.
//
// To guard it, add a flow that drops all "incomplete" packets in the same direction, on the same interface or on all.
// The result is in the order of flows.
func Unguarded(flows []Flow) []Flow {
	type side struct {
		direction Direction
		ifname    string
	}
	guarded := make(map[side]bool)
	for i := range flows {
		// A match on further headers is no guard: it drops only some incomplete packets.
		if f := &flows[i]; f.Action == Drop && f.Match.Incomplete && f.Match.String() == wordIncomplete {
			guarded[side{f.Direction, f.Interface}] = true
		}
	}
	var out []Flow
	for _, f := range flows {
		if f.Action == Drop && f.Match.looksBehindEthernet() && !guarded[side{f.Direction, ""}] && !guarded[side{f.Direction, f.Interface}] {
			out = append(out, f)
		}
	}
	return out
}

// looksBehindEthernet reports whether incomplete headers can hide a matched header. A match on incomplete packets is not
// affected.
func (m *Match) looksBehindEthernet() bool {
	return !m.Incomplete && (m.MPLS != nil || m.ARP != nil && *m.ARP != ARP{} || m.chooses("arp") || m.needsIP())
}
