package flow

import (
	"fmt"
	"maps"
	"slices"
)

// mostExpanded limits the result of Expand.
const mostExpanded = 1024

// Expand replaces choices and port ranges by masked values, for hardware without sets and ranges. Together the returned
// matches select the same packets as m, and no packet matches two of them. They share no memory with m.
//
// Each range becomes the fewest masks that cover it, at most 30. Several sets and ranges multiply, and Expand fails with
// [ErrInvalid] beyond 1024 matches, and for a match with a named set. If m matches a tunnel over UDP, the result also has the
// port of the tunnel in UDP.
func (m Match) Expand() ([]Match, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("expanding match: %w", err)
	}
	if !m.anyChoice() {
		return m.expandRanges(mostExpanded)
	}
	if err := m.RefuseNamedSets(); err != nil {
		return nil, err
	}

	var out []Match
	for _, plain := range m.alternatives() {
		more, err := plain.expandRanges(mostExpanded - len(out))
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// expandRanges is Expand for a valid match without choices. It fails if the result has more than most matches.
func (m Match) expandRanges(most int) ([]Match, error) {
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
		if len(out)*len(masks) > most {
			return nil, tooManyMasks()
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
	if len(out) > most {
		return nil, tooManyMasks()
	}
	return out, nil
}

func tooManyMasks() error {
	return &FieldError{
		Cause: fmt.Sprintf("its sets and port ranges together need more than %d masks", mostExpanded),
		Fix:   "use ranges that start and end at multiples of powers of two, or make several flows of it",
	}
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

// masks returns the fewest masked values that cover a range.
func (p Port) masks() (out []Port) {
	for v := range prefixes(16, span{Number{Lo: uint64(p.Value)}, Number{Lo: uint64(p.Last)}}) {
		out = append(out, Port{Value: uint16(v.Value.Lo), Mask: uint16(v.Mask.Lo)})
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
	c := m.cloneLevel()
	for inner := range c.inners() {
		in := (*inner).Clone()
		*inner = &in
	}
	return c
}

// cloneLevel is Clone without the headers inside a tunnel, which the copy shares.
func (m *Match) cloneLevel() Match {
	c := *m
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
	c.Choices = slices.Clone(m.Choices)
	for i := range c.Choices {
		c.Choices[i].Values = slices.Clone(c.Choices[i].Values)
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
