package gen

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Flows draws n valid flows named f0, f1, and so on. As in real sets, they have few shapes: which fields, under which masks. So
// the number of masks stays small, however large n is. Many priorities are equal, directions and actions are mixed, and
// Interface is empty.
func Flows(rng *rand.Rand, n int) []flow.Flow {
	shapes := make([]shape, 1+rng.IntN(8))
	for i := range shapes {
		shapes[i] = drawShape(rng)
	}
	flows := make([]flow.Flow, 0, n)
	for len(flows) < n {
		f := flow.Flow{
			Name:      fmt.Sprintf("f%d", len(flows)),
			Match:     one(rng, shapes...).instance(rng),
			Priority:  uint16(rng.IntN(4)),
			Direction: one(rng, flow.Ingress, flow.Ingress, flow.Egress),
			Action:    one(rng, flow.Count, flow.Count, flow.Drop),
		}
		if often(rng, 20) {
			f.Priority = 65535
		}
		flows = append(flows, f)
	}
	return flows
}

// shape is the seed for the masks of a match, so that several matches get the same masks. Values come from another source.
type shape struct{ a, b uint64 }

// drawShape draws a shape. Its matches are valid and take few masks.
func drawShape(rng *rand.Rand) shape {
	for {
		s := shape{rng.Uint64(), rng.Uint64()}
		m := s.drawn(rng)
		most := 24
		if hasSets(&m) {
			most = 64 // an address that is excluded takes a mask for each of its bits
		}
		if masks, err := m.Expand(); err == nil && len(masks) <= most {
			return s
		}
	}
}

// instance draws a valid match of the shape.
func (s shape) instance(rng *rand.Rand) flow.Match {
	for {
		if m := s.drawn(rng); m.Validate() == nil {
			return canonical(m)
		}
	}
}

func (s shape) drawn(values *rand.Rand) flow.Match {
	d := drawer{masks: rand.New(rand.NewPCG(s.a, s.b)), values: values}
	return d.match(true)
}

// drawer draws a match: from masks which fields it has and their masks, and from values their values.
type drawer struct{ masks, values *rand.Rand }

func (d drawer) match(outer bool) (m flow.Match) {
	if often(d.masks, 5) {
		m.Eth = d.eth()
	}
	if often(d.masks, 4) {
		for range 1 + d.masks.IntN(2) {
			m.VLAN = append(m.VLAN, d.vlan())
		}
	}
	m.Untagged = len(m.VLAN) == 0 && often(d.masks, 8)
	seldom := 12 // few flows have a tunnel, so more of the inner headers are without IP
	if !outer {
		seldom = 5
	}
	if often(d.masks, seldom) {
		m.MPLS = d.mpls()
		d.choices(&m)
		return m
	}
	if often(d.masks, seldom) {
		m.ARP = d.arp()
		m.Incomplete = *m.ARP == flow.ARP{} && often(d.masks, 4)
		if !m.Incomplete {
			d.choices(&m)
		}
		return m
	}
	switch d.masks.IntN(8) {
	case 0, 1, 2, 3:
		m.IPv4 = d.ipv4()
	case 4, 5, 6:
		m.IPv6 = d.ipv6()
	}
	d.upper(&m, outer)
	d.choices(&m)
	return m
}

// upper draws what a match has above IP.
func (d drawer) upper(m *flow.Match, outer bool) {
	upper := d.masks.IntN(15)
	if !outer && upper > 6 && upper < 13 {
		upper = 5 // draw nothing, because there is no match of a tunnel in a tunnel
	}
	later := m.IPv4 != nil && m.IPv4.Fragment == flow.FragmentLater || m.IPv6 != nil && m.IPv6.Fragment == flow.FragmentLater
	if often(d.masks, 8) && !later {
		m.Incomplete = true
		d.bare(m, upper)
		return
	}

	switch upper {
	case 0, 1:
		m.UDP = d.ports()
	case 2, 3:
		m.TCP = &flow.TCP{}
		if !often(d.masks, 3) {
			m.TCP.Ports = *d.ports()
		}
		if often(d.masks, 2) {
			mask := one(d.masks,
				flow.SYN, flow.SYN|flow.ACK, flow.SYN|flow.ACK|flow.RST|flow.FIN, 0xff, 0xfff, flow.AE,
				flow.TCPFlags(d.masks.Uint32()&0xfff))
			m.TCP.Flags = flow.Masked[flow.TCPFlags]{Value: drawFlags(d.values) & mask, Mask: mask}
		}
	case 4:
		m.ICMP = new(flow.ICMP)
		masked(d, &m.ICMP.Type, 8, drawByte)
		masked(d, &m.ICMP.Code, 8, drawByte)
	case 6:
		m.ESP = new(flow.ESP)
		masked(d, &m.ESP.SPI, 32, drawSPI)
	case 13:
		m.SCTP = new(flow.SCTP)
		if often(d.masks, 2) {
			m.SCTP.Ports = *d.ports()
		}
		masked(d, &m.SCTP.Tag, 32, drawSPI)
	case 14:
		if m.IPv6 == nil {
			m.IPv4, m.AH = cmp.Or(m.IPv4, new(flow.IPv4)), new(flow.AH)
			masked(d, &m.AH.SPI, 32, drawSPI)
		}
	case 7:
		m.VXLAN = new(flow.VXLAN)
		masked(d, &m.VXLAN.VNI, 24, drawVNI)
		m.VXLAN.Inner = d.inner()
	case 8:
		m.GRE = new(flow.GRE)
		masked(d, &m.GRE.Key, 32, drawKey)
		m.GRE.Inner = d.inner()
	case 9:
		m.IPIP = &flow.IPIP{Inner: d.innerIP()}
	case 10:
		m.Geneve = new(flow.Geneve)
		masked(d, &m.Geneve.VNI, 24, drawVNI)
		m.Geneve.Inner = d.inner()
	case 11:
		m.GTPU = new(flow.GTPU)
		masked(d, &m.GTPU.TEID, 32, drawTEID)
		m.GTPU.Inner = d.innerIP()
	case 12:
		m.MPLSUDP = new(flow.MPLSUDP)
		if !often(d.masks, 3) {
			m.MPLSUDP.MPLS = *d.mpls()
		}
		m.MPLSUDP.Inner = d.innerIP()
	}
}

// innerIP is inner without the layers below IP.
func (d drawer) innerIP() *flow.Match {
	in := d.inner()
	if in != nil {
		in.Eth, in.VLAN, in.Untagged, in.MPLS, in.ARP = nil, nil, false, nil, nil
	}
	return in
}

// bare draws a clause of a protocol that is valid together with "incomplete", or none.
func (d drawer) bare(m *flow.Match, upper int) {
	switch upper {
	case 0:
		m.TCP = new(flow.TCP)
		if often(d.masks, 2) {
			m.TCP.Ports = *d.ports()
		}
	case 1:
		m.UDP = new(flow.Ports)
	case 2:
		m.ICMP = new(flow.ICMP)
	case 3:
		m.ESP = new(flow.ESP)
	case 4:
		m.SCTP = new(flow.SCTP)
	case 6:
		if m.IPv4 != nil {
			m.AH = new(flow.AH)
		}
	}
}

func (d drawer) inner() *flow.Match {
	switch d.masks.IntN(4) {
	case 0:
		return nil
	case 1:
		if often(d.masks, 2) {
			return new(flow.Match)
		}
	}
	m := d.match(false)
	return &m
}

func (d drawer) eth() *flow.Eth {
	e := new(flow.Eth)
	for _, m := range []*flow.MAC{&e.Src, &e.Dst} {
		if often(d.masks, 2) {
			maskBytes(d.masks, m.Mask[:])
			m.Addr = drawMAC(d.values)
			and(m.Addr[:], m.Mask[:])
		}
	}
	if often(d.masks, 3) {
		masked(d, &e.Type, 16, drawEtherType)
	}
	return e
}

func (d drawer) vlan() (v flow.VLAN) {
	masked(d, &v.ID, 12, drawTag)
	if often(d.masks, 3) {
		masked(d, &v.PCP, 3, drawByte)
		masked(d, &v.DEI, 1, drawByte)
	}
	return v
}

func (d drawer) mpls() *flow.MPLS {
	m := new(flow.MPLS)
	masked(d, &m.Label, 20, func(rng *rand.Rand) uint32 { return drawEntry(rng) >> 12 })
	if often(d.masks, 3) {
		masked(d, &m.TC, 3, drawByte)
		masked(d, &m.Bottom, 1, drawByte)
		masked(d, &m.TTL, 8, drawByte)
	}
	return m
}

func (d drawer) arp() *flow.ARP {
	a := new(flow.ARP)
	masked(d, &a.Op, 16, drawOperation)
	for _, addr := range []*flow.Addr4{&a.Sender, &a.Target} {
		if often(d.masks, 2) {
			maskBytes(d.masks, addr.Mask[:])
			addr.Addr = drawAddr4(d.values)
			and(addr.Addr[:], addr.Mask[:])
		}
	}
	return a
}

func (d drawer) ipv4() *flow.IPv4 {
	ip := new(flow.IPv4)
	for _, a := range []*flow.Addr4{&ip.Src, &ip.Dst} {
		if often(d.masks, 2) {
			maskBytes(d.masks, a.Mask[:])
			a.Addr = drawAddr4(d.values)
			and(a.Addr[:], a.Mask[:])
		}
	}
	if often(d.masks, 5) {
		masked(d, &ip.Proto, 8, drawProto)
	}
	if often(d.masks, 5) {
		masked(d, &ip.TOS, 8, drawByte)
		masked(d, &ip.TTL, 8, drawByte)
	}
	if often(d.masks, 5) {
		ip.Fragment = d.fragment()
	}
	return ip
}

func (d drawer) fragment() flow.Fragment {
	return one(d.masks, flow.FragmentNo, flow.FragmentYes, flow.FragmentFirst, flow.FragmentLater)
}

func (d drawer) ipv6() *flow.IPv6 {
	ip := new(flow.IPv6)
	for _, a := range []*flow.Addr6{&ip.Src, &ip.Dst} {
		if often(d.masks, 2) {
			maskBytes(d.masks, a.Mask[:])
			a.Addr = drawAddr6(d.values)
			and(a.Addr[:], a.Mask[:])
		}
	}
	if often(d.masks, 5) {
		masked(d, &ip.NextHeader, 8, func(rng *rand.Rand) uint8 {
			return one(rng, 0, 43, 44, 60, 51, drawProto(rng))
		})
	}
	if often(d.masks, 5) {
		masked(d, &ip.FlowLabel, 20, drawLabel)
		masked(d, &ip.TrafficClass, 8, drawByte)
		masked(d, &ip.HopLimit, 8, drawByte)
	}
	if often(d.masks, 4) {
		ip.Fragment = d.fragment()
	}
	return ip
}

func (d drawer) ports() *flow.Ports {
	p := new(flow.Ports)
	for _, port := range []*flow.Port{&p.Src, &p.Dst} {
		switch d.masks.IntN(8) {
		case 0, 1, 2:
			m := under(d.masks, 16, uint16(0xffff))
			*port = flow.Port{Value: drawPort(d.values) & m.Mask, Mask: m.Mask}
		case 3: // from masks, so that each flow of the shape takes the same few masks
			first := drawPort(d.masks)
			if last := uint32(first) + uint32(one(d.masks, 1, 7, 20, 1000)); last < 0x10000 {
				*port = flow.Port{Value: first, Last: uint16(last)}
			}
		case 4:
			if often(d.masks, 4) {
				*port = flow.Port{Value: 0, Last: 0xffff}
			}
		}
	}
	return p
}

// masked draws a field, or leaves it out.
func masked[T ~uint8 | ~uint16 | ~uint32](d drawer, f *flow.Masked[T], bits int, value func(*rand.Rand) T) {
	if often(d.masks, 3) {
		return
	}
	mask := under(d.masks, bits, ^T(0)).Mask
	*f = flow.Masked[T]{Value: value(d.values) & mask, Mask: mask}
}
