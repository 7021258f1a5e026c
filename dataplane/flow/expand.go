package flow

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// mostExpanded limits the result of Expand.
const mostExpanded = 1024

// Expand replaces port ranges by masked values, for hardware without ranges. Together the returned matches select the same
// packets as m, and no packet matches two of them. They share no memory with m.
//
// Each range becomes the fewest masks that cover it, at most 30. Several ranges multiply, and Expand fails with
// [ErrInvalid] beyond 1024 matches. If m matches a tunnel over UDP, the result also has the port of the tunnel in UDP.
func (m Match) Expand() ([]Match, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("expanding match: %w", err)
	}
	m = m.Clone()
	if port := m.TunnelPort(); port != 0 {
		if m.UDP == nil {
			m.UDP = new(Ports)
		}
		m.UDP.Dst = Port{Value: port, Mask: 0xffff}
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

// ports returns the ports of a match, those inside a tunnel last. Their indexes are the same for every copy of the match.
func (m *Match) ports() []*Port {
	var all []*Port
	if m.TCP != nil {
		all = append(all, &m.TCP.Src, &m.TCP.Dst)
	}
	if m.UDP != nil {
		all = append(all, &m.UDP.Src, &m.UDP.Dst)
	}
	if m.SCTP != nil {
		all = append(all, &m.SCTP.Src, &m.SCTP.Dst)
	}
	if inner := m.Inner(); inner != nil {
		all = append(all, inner.ports()...)
	}
	return all
}

// masks returns the fewest masked values that cover a range, in ascending order. Each is an aligned power of two.
func (p Port) masks() []Port {
	if p.Value == 0 && p.Last == 0xffff {
		// A single mask of 0 would also match packets without ports, such as later fragments.
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

// Clone returns a deep copy.
func (f Flow) Clone() Flow {
	f.Match = f.Match.Clone()
	f.Labels = maps.Clone(f.Labels)
	return f
}

// Clone returns a deep copy.
func (m Match) Clone() Match {
	c := m
	c.Eth = copyOf(m.Eth)
	c.VLAN = slices.Clone(m.VLAN)
	c.MPLS = copyOf(m.MPLS)
	c.ARP = copyOf(m.ARP)
	c.IPv4 = copyOf(m.IPv4)
	c.IPv6 = copyOf(m.IPv6)
	c.TCP = copyOf(m.TCP)
	c.UDP = copyOf(m.UDP)
	c.SCTP = copyOf(m.SCTP)
	c.ICMP = copyOf(m.ICMP)
	c.ESP = copyOf(m.ESP)
	c.AH = copyOf(m.AH)
	c.VXLAN = copyOf(m.VXLAN)
	c.GRE = copyOf(m.GRE)
	c.IPIP = copyOf(m.IPIP)
	c.Geneve = copyOf(m.Geneve)
	c.GTPU = copyOf(m.GTPU)
	c.MPLSUDP = copyOf(m.MPLSUDP)

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
