package gen

import (
	"math/rand/v2"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// choosable is a field of a match for which a set can be drawn.
type choosable struct {
	clause string
	tag    int
	field  string
	bits   int
	ranges bool
	free   bool // the match does not ask for a value of it
	draw   func(*rand.Rand) flow.Number
	set    func(flow.Number) // makes the match ask for this value
}

// choosables returns the fields of the clauses that m has.
func choosables(m *flow.Match) (out []choosable) {
	mac := func(rng *rand.Rand) []byte { b := drawMAC(rng); return b[:] }
	addr4 := func(rng *rand.Rand) []byte { b := drawAddr4(rng); return b[:] }
	addr6 := func(rng *rand.Rand) []byte { b := drawAddr6(rng); return b[:] }
	if e := m.Eth; e != nil {
		addBytes(&out, "eth", "src", e.Src.Addr[:], e.Src.Mask[:], mac)
		addBytes(&out, "eth", "dst", e.Dst.Addr[:], e.Dst.Mask[:], mac)
		addNumber(&out, "eth", 0, "type", 16, &e.Type, drawEtherType)
	}
	for i := range m.VLAN {
		v := &m.VLAN[i]
		addNumber(&out, "vlan", i, "id", 12, &v.ID, drawTag)
		addNumber(&out, "vlan", i, "pcp", 3, &v.PCP, drawByte)
		addNumber(&out, "vlan", i, "dei", 1, &v.DEI, drawByte)
	}
	if m.MPLS != nil {
		addEntry(&out, "mpls", m.MPLS)
	}
	if a := m.ARP; a != nil {
		addNumber(&out, "arp", 0, "op", 16, &a.Op, func(rng *rand.Rand) uint16 { return one[uint16](rng, 1, 2, 3) })
		addBytes(&out, "arp", "sender", a.Sender.Addr[:], a.Sender.Mask[:], addr4)
		addBytes(&out, "arp", "target", a.Target.Addr[:], a.Target.Mask[:], addr4)
	}
	if ip := m.IPv4; ip != nil {
		addBytes(&out, "ipv4", "src", ip.Src.Addr[:], ip.Src.Mask[:], addr4)
		addBytes(&out, "ipv4", "dst", ip.Dst.Addr[:], ip.Dst.Mask[:], addr4)
		addNumber(&out, "ipv4", 0, "proto", 8, &ip.Proto, drawProto)
		addNumber(&out, "ipv4", 0, "tos", 8, &ip.TOS, drawByte)
		addClass(&out, "ipv4", &ip.TOS)
		addNumber(&out, "ipv4", 0, "ttl", 8, &ip.TTL, drawByte)
	}
	if ip := m.IPv6; ip != nil {
		addBytes(&out, "ipv6", "src", ip.Src.Addr[:], ip.Src.Mask[:], addr6)
		addBytes(&out, "ipv6", "dst", ip.Dst.Addr[:], ip.Dst.Mask[:], addr6)
		addNumber(&out, "ipv6", 0, "label", 20, &ip.FlowLabel, drawLabel)
		addNumber(&out, "ipv6", 0, "nexthdr", 8, &ip.NextHeader, func(rng *rand.Rand) uint8 { return one(rng, 0, 43, 44, 60, 51, drawProto(rng)) })
		addNumber(&out, "ipv6", 0, "tclass", 8, &ip.TrafficClass, drawByte)
		addClass(&out, "ipv6", &ip.TrafficClass)
		addNumber(&out, "ipv6", 0, "hoplimit", 8, &ip.HopLimit, drawByte)
	}
	if t := m.TCP; t != nil {
		out = addPorts(out, "tcp", &t.Ports)
		addNumber(&out, "tcp", 0, "flags", 12, &t.Flags, drawFlags)
	}
	if m.UDP != nil {
		out = addPorts(out, "udp", m.UDP)
	}
	if s := m.SCTP; s != nil {
		out = addPorts(out, "sctp", &s.Ports)
		addNumber(&out, "sctp", 0, "vtag", 32, &s.Tag, drawSPI)
	}
	if i := m.ICMP; i != nil {
		addNumber(&out, "icmp", 0, "type", 8, &i.Type, drawByte)
		addNumber(&out, "icmp", 0, "code", 8, &i.Code, drawByte)
	}
	if m.ESP != nil {
		addNumber(&out, "esp", 0, "spi", 32, &m.ESP.SPI, drawSPI)
	}
	if m.AH != nil {
		addNumber(&out, "ah", 0, "spi", 32, &m.AH.SPI, drawSPI)
	}
	if m.Geneve != nil {
		addNumber(&out, "geneve", 0, "vni", 24, &m.Geneve.VNI, drawVNI)
	}
	if m.GTPU != nil {
		addNumber(&out, "gtpu", 0, "teid", 32, &m.GTPU.TEID, drawKey)
	}
	if m.MPLSUDP != nil {
		addEntry(&out, "mplsudp", &m.MPLSUDP.MPLS)
	}
	if m.VXLAN != nil {
		addNumber(&out, "vxlan", 0, "vni", 24, &m.VXLAN.VNI, drawVNI)
	}
	if m.GRE != nil {
		addNumber(&out, "gre", 0, "key", 32, &m.GRE.Key, drawKey)
	}
	return out
}

func addEntry(out *[]choosable, clause string, e *flow.MPLS) {
	addNumber(out, clause, 0, "label", 20, &e.Label, func(rng *rand.Rand) uint32 { return drawEntry(rng) >> 12 })
	addNumber(out, clause, 0, "tc", 3, &e.TC, drawByte)
	addNumber(out, clause, 0, "bos", 1, &e.Bottom, drawByte)
	addNumber(out, clause, 0, "ttl", 8, &e.TTL, drawByte)
}

// addClass adds the parts of the traffic class.
func addClass(out *[]choosable, clause string, f *flow.Masked[uint8]) {
	for _, part := range []struct {
		field       string
		shift, bits int
	}{{"dscp", 2, 6}, {"ecn", 0, 2}} {
		most := uint8(1)<<part.bits - 1
		*out = append(*out, choosable{
			clause: clause, field: part.field, bits: part.bits, ranges: true, free: f.Mask == 0,
			draw: func(rng *rand.Rand) flow.Number { return flow.Number{Lo: uint64(drawByte(rng) >> part.shift & most)} },
			set: func(n flow.Number) {
				f.Value = f.Value&^(most<<part.shift) | uint8(n.Lo)<<part.shift
				f.Mask |= most << part.shift
			},
		})
	}
}

func addBytes(out *[]choosable, clause, field string, addr, mask []byte, draw func(*rand.Rand) []byte) {
	*out = append(*out, choosable{
		clause: clause, field: field, bits: 8 * len(addr), ranges: clause != "eth", free: flow.NumberOf(mask) == flow.Number{},
		draw: func(rng *rand.Rand) flow.Number { return flow.NumberOf(draw(rng)) },
		set: func(n flow.Number) {
			n.Fill(addr)
			for i := range mask {
				mask[i] = 0xff
			}
		},
	})
}

func addNumber[T ~uint8 | ~uint16 | ~uint32](out *[]choosable, clause string, tag int, field string, bits int, f *flow.Masked[T], draw func(*rand.Rand) T) {
	whole := uint32(uint64(1)<<bits - 1)
	*out = append(*out, choosable{
		clause: clause, tag: tag, field: field, bits: bits, ranges: field != "flags", free: f.Mask == 0,
		draw: func(rng *rand.Rand) flow.Number { return flow.Number{Lo: uint64(uint32(draw(rng)) & whole)} },
		set:  func(n flow.Number) { *f = flow.Masked[T]{Value: T(n.Lo), Mask: T(whole)} },
	})
}

func addPorts(out []choosable, clause string, p *flow.Ports) []choosable {
	for _, one := range []struct {
		field string
		port  *flow.Port
	}{{"sport", &p.Src}, {"dport", &p.Dst}} {
		out = append(out, choosable{
			clause: clause, field: one.field, bits: 16, ranges: true, free: *one.port == flow.Port{},
			draw: func(rng *rand.Rand) flow.Number { return flow.Number{Lo: uint64(drawPort(rng))} },
			set:  func(n flow.Number) { *one.port = flow.Port{Value: uint16(n.Lo), Mask: 0xffff} },
		})
	}
	return out
}

// choices draws sets for some fields of which the match asks for no value.
func (d drawer) choices(m *flow.Match) {
	if !often(d.masks, 3) {
		return
	}
	for _, c := range choosables(m) {
		if c.free && often(d.masks, 4) {
			m.Choices = append(m.Choices, c.choice(d.masks, d.values))
		}
	}
}

// choice draws a set: its kind and masks from masks, its values from values.
func (c choosable) choice(masks, values *rand.Rand) flow.Choice {
	out := flow.Choice{Clause: c.clause, Tag: c.tag, Field: c.field, Not: often(masks, 3)}
	most := whole(c.bits)
	prefix := c.bits // bounds the free bits
	if !out.Not {
		prefix = min(c.bits, 12) // few addresses, so that packets hit
	}
	for range one(masks, 1, 2, 2, 3, 5) {
		n := c.draw(values)
		v := flow.Value{Value: n, Mask: most}
		switch masks.IntN(6) {
		case 0: // a prefix
			v.Mask = andNot(most, whole(masks.IntN(prefix)))
		case 1: // a range
			last := n
			if last.Lo += uint64(one(masks, 1, 3, 5, 20)); c.ranges && last.Lo > n.Lo && last.Compare(most) <= 0 {
				out.Values = append(out.Values, flow.Value{Value: n, Last: last})
				continue
			}
		case 2:
			if often(masks, 2) { // any mask
				v.Mask = andNot(most, flow.Number{Lo: 1 << masks.IntN(min(c.bits, 64))})
			}
		}
		if v.Mask == (flow.Number{}) {
			v.Mask = most
		}
		v.Value = flow.Number{Hi: n.Hi & v.Mask.Hi, Lo: n.Lo & v.Mask.Lo}
		out.Values = append(out.Values, v)
	}
	return out
}

func whole(bits int) flow.Number {
	if bits >= 64 {
		return flow.Number{Hi: uint64(1)<<(bits-64) - 1, Lo: ^uint64(0)}
	}
	return flow.Number{Lo: uint64(1)<<bits - 1}
}

func andNot(a, b flow.Number) flow.Number { return flow.Number{Hi: a.Hi &^ b.Hi, Lo: a.Lo &^ b.Lo} }

// pick returns m with one value for each of its sets, at this level of headers. Where a set excludes values, most of the
// values that it returns are allowed.
func pick(rng *rand.Rand, m *flow.Match) *flow.Match {
	if len(m.Choices) == 0 {
		return m
	}
	out := m.Clone()
	out.Choices = nil
	for _, field := range choosables(&out) {
		for _, c := range m.Choices {
			if c.Clause == field.clause && c.Tag == field.tag && c.Field == field.field {
				field.set(field.value(rng, c))
			}
		}
	}
	return &out
}

// value draws a value of a set, often at its edge.
func (c choosable) value(rng *rand.Rand, set flow.Choice) flow.Number {
	most := whole(c.bits)
	v := set.Values[rng.IntN(len(set.Values))]
	n := v.Value
	if v.Last == (flow.Number{}) {
		free := andNot(most, v.Mask)
		n.Hi |= rng.Uint64() & free.Hi
		n.Lo |= rng.Uint64() & free.Lo
	} else if span := v.Last.Lo - v.Value.Lo; span > 0 { // drawn ranges differ in Lo alone
		n.Lo += one(rng, 0, span, rng.Uint64()%(span+1))
	}
	if set.Not || often(rng, 12) {
		n.Lo += one(rng, 1, ^uint64(0), rng.Uint64())
	}
	return flow.Number{Hi: n.Hi & most.Hi, Lo: n.Lo & most.Lo}
}

// hasSets reports whether the match has a set, also inside its tunnel.
func hasSets(m *flow.Match) bool {
	in := m.Inner()
	return len(m.Choices) > 0 || in != nil && len(in.Choices) > 0
}

// canonical returns a match as a user would write it.
func canonical(m flow.Match) flow.Match {
	if !hasSets(&m) {
		return m
	}
	out, err := flow.ParseMatch(m.String())
	if err != nil {
		panic("reading a drawn match: " + err.Error())
	}
	return out
}
