package engine

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// relate notes which flow wins between each fresh flow and each flow of the stack that overlaps it, and
// adds the fresh flows to the stack. It costs as much as there are flows that may overlap the fresh ones.
func (s *stack) relate(fresh []*counted) {
	for _, c := range fresh {
		s.related.meeting(&c.Flow, func(o *counted) { rank(c, o) })
		s.related.add(c)
	}
}

// rank notes which of two flows that overlap wins.
func rank(a, b *counted) {
	if byPrecedence(a, b) > 0 {
		a, b = b, a
	}
	a.below = append(a.below, b)
	b.above, b.unsorted = append(b.above, a), true
}

// winners are the flows that win over c on packets that both match, in their order.
func (c *counted) winners() []*counted {
	if c.unsorted {
		slices.SortFunc(c.above, byPrecedence)
		c.unsorted = false
	}
	return c.above
}

// losers are the flows that some of winners win over, perhaps several times.
func losers(winners []*counted) []*counted {
	out := []*counted{}
	for _, c := range winners {
		if c.layered != nil {
			out = append(out, c.below...)
		}
	}
	return out
}

// unrelate forgets flows that are gone.
func (s *stack) unrelate(gone []*counted) {
	out, touched := make(map[*counted]bool, len(gone)), make(map[*counted]bool)
	for _, c := range gone {
		out[c] = true
		s.related.remove(c)
	}
	for _, c := range gone {
		for _, o := range slices.Concat(c.above, c.below) {
			touched[o] = !out[o]
		}
	}
	left := func(o *counted) bool { return out[o] }
	for o, stays := range touched {
		if stays {
			o.above, o.below = slices.DeleteFunc(o.above, left), slices.DeleteFunc(o.below, left)
		}
	}
}

// key is something that a packet has once, and that a flow may name: of two flows that name two
// different values none can overlap the other. "" is for flows that leave it open.
type key func(*flow.Flow) string

// keys tell most flows of a large set apart, which looking at every two of them (16384: 134 million)
// would not do in the time that a control call has.
var keys = []key{destinationAddress, destinationPort, sourceAddress, sourcePort, networkInterface}

func networkInterface(f *flow.Flow) string { return f.Interface }

func destinationAddress(f *flow.Flow) string {
	switch m := &f.Match; {
	case m.IPv4 != nil:
		return address(m.IPv4.Dst.Addr[:], m.IPv4.Dst.Mask[:])
	case m.IPv6 != nil:
		return address(m.IPv6.Dst.Addr[:], m.IPv6.Dst.Mask[:])
	}
	return ""
}

func sourceAddress(f *flow.Flow) string {
	switch m := &f.Match; {
	case m.IPv4 != nil:
		return address(m.IPv4.Src.Addr[:], m.IPv4.Src.Mask[:])
	case m.IPv6 != nil:
		return address(m.IPv6.Src.Addr[:], m.IPv6.Src.Mask[:])
	}
	return ""
}

func address(a, mask []byte) string {
	if slices.ContainsFunc(mask, func(b byte) bool { return b != 0xff }) {
		return ""
	}
	return string(a)
}

func destinationPort(f *flow.Flow) string {
	return ofPorts(&f.Match, func(p *flow.Ports) flow.Port { return p.Dst })
}

func sourcePort(f *flow.Flow) string {
	return ofPorts(&f.Match, func(p *flow.Ports) flow.Port { return p.Src })
}

func ofPorts(m *flow.Match, which func(*flow.Ports) flow.Port) string {
	protocol, ports := byte(upperTCP), m.TCP
	if ports == nil {
		protocol, ports = upperUDP, m.UDP
	}
	if ports == nil {
		return ""
	}
	p := which(ports)
	if p.Mask != 0xffff { // a range has none
		return ""
	}
	return string([]byte{protocol, byte(p.Value >> 8), byte(p.Value)})
}
