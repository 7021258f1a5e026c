package flow

// Unguarded returns the flows that drop by headers above Ethernet and have no guard. If the headers of a packet are
// incomplete, such a flow may miss the headers that it asks for, and the packet passes. A guard is a flow that drops
// all packets with incomplete headers, in one direction of one interface or of all. The result keeps the order of
// flows.
func Unguarded(flows []Flow) []Flow {
	type side struct {
		direction Direction
		ifname    string
	}
	guarded := make(map[side]bool)
	for i := range flows {
		// A flow that asks for more drops only some of them.
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

// looksBehindEthernet reports whether incomplete headers can hide the matched headers. A match with
// `incomplete` is not affected.
func (m *Match) looksBehindEthernet() bool {
	return !m.Incomplete && (m.MPLS != nil || m.needsIP())
}
