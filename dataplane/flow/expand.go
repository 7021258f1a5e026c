package flow

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// mostExpanded is the largest number of matches that Expand returns.
const mostExpanded = 1024

// Expand writes every port range as masked values: no match of the result holds a range, no two of
// them select one packet, and together they select the packets of m. A range becomes the fewest
// masks that cover it, at most 30. A match with several ranges becomes their product; more than 1024
// matches are an error that satisfies errors.Is(err, ErrInvalid). The UDP port that VXLAN requires
// stands in UDP too. The result shares no memory with m.
func (m Match) Expand() ([]Match, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("expanding match: %w", err)
	}
	m = m.Clone()
	if m.VXLAN != nil {
		if m.UDP == nil {
			m.UDP = new(Ports)
		}
		m.UDP.Dst = Port{Value: PortVXLAN, Mask: 0xffff}
	}

	out := []Match{m}
	for i, port := range m.ports() {
		if port.Last == 0 {
			continue
		}
		masks := port.masks()
		if len(out)*len(masks) > mostExpanded {
			return nil, &FieldError{
				Cause: fmt.Sprintf("its port ranges together need more than %d masks", mostExpanded),
				Fix:   "use ranges that start and end at multiples of powers of two, or make several flows of it",
			}
		}

		next := make([]Match, 0, len(out)*len(masks))
		for _, base := range out {
			for _, p := range masks {
				one := base.Clone()
				*one.ports()[i] = p
				next = append(next, one)
			}
		}
		out = next
	}
	return out, nil
}

// ports returns the ports of a match, those inside a tunnel last. A copy of the match has them in the same places.
func (m *Match) ports() []*Port {
	var all []*Port
	if m.TCP != nil {
		all = append(all, &m.TCP.Src, &m.TCP.Dst)
	}
	if m.UDP != nil {
		all = append(all, &m.UDP.Src, &m.UDP.Dst)
	}
	if inner := m.Inner(); inner != nil {
		all = append(all, inner.ports()...)
	}
	return all
}

// masks covers a range with the fewest aligned powers of two, in rising order.
func (p Port) masks() []Port {
	if p.Value == 0 && p.Last == 0xffff {
		// One mask of 0 would say that the port is not looked at, and a
		// packet without ports would match.
		return []Port{{Value: 0, Mask: 0x8000}, {Value: 0x8000, Mask: 0x8000}}
	}
	var out []Port
	for lo, hi := uint32(p.Value), uint32(p.Last); lo <= hi; {
		size := uint32(1) << min(bits.TrailingZeros32(lo|1<<16), bits.Len32(hi-lo+1)-1)
		out = append(out, Port{Value: uint16(lo), Mask: ^uint16(size - 1)})
		lo += size
	}
	return out
}

// Clone returns a copy that shares no memory with f.
func (f Flow) Clone() Flow {
	f.Match = f.Match.Clone()
	f.Labels = maps.Clone(f.Labels)
	return f
}

// Clone copies a match; the copy shares no memory with m.
func (m Match) Clone() Match {
	c := m
	c.Eth = copyOf(m.Eth)
	c.VLAN = slices.Clone(m.VLAN)
	c.MPLS = copyOf(m.MPLS)
	c.IPv4 = copyOf(m.IPv4)
	c.IPv6 = copyOf(m.IPv6)
	c.TCP = copyOf(m.TCP)
	c.UDP = copyOf(m.UDP)
	c.ICMP = copyOf(m.ICMP)
	c.ESP = copyOf(m.ESP)
	c.VXLAN = copyOf(m.VXLAN)
	c.GRE = copyOf(m.GRE)

	for i := range clauses {
		inner := clauses[i].inner
		if inner == nil || !clauses[i].has(&c) || *inner(&c) == nil {
			continue
		}
		in := (*inner(&c)).Clone()
		*inner(&c) = &in
	}
	return c
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
