package gen

import (
	"math/rand/v2"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// satisfy changes the packet so that m matches it. Fields without a part in m stay as drawn.
func (p *headers) satisfy(rng *rand.Rand, m *flow.Match) {
	m = pick(rng, m)
	if m.Eth != nil {
		mixBytes(p.src[:], m.Eth.Src.Addr[:], m.Eth.Src.Mask[:])
		mixBytes(p.dst[:], m.Eth.Dst.Addr[:], m.Eth.Dst.Mask[:])
		if m.Eth.Type.Mask != 0 {
			mix(&p.etherType, m.Eth.Type)
			switch {
			case p.etherType == 0x0800:
				p.ip = 4
			case p.etherType == 0x86dd:
				p.ip = 6
			case m.IPv4 == nil && m.IPv6 == nil:
				p.ip = 0
			}
		}
	}
	if e := m.MPLS; e != nil {
		p.ip = 0
		if !mpls(p.etherType) {
			p.etherType = one[uint16](rng, 0x8847, 0x8848)
		}
		mix(&p.entries[0], entryOf(e))
	}
	if a := m.ARP; a != nil {
		p.ip, p.etherType, p.otherARP = 0, 0x0806, false
		mix(&p.op, a.Op)
		mixBytes(p.src4[:], a.Sender.Addr[:], a.Sender.Mask[:])
		mixBytes(p.dst4[:], a.Target.Addr[:], a.Target.Mask[:])
	}
	if m.Untagged {
		p.tags = nil
		if p.etherType == 0x8100 || p.etherType == 0x88a8 {
			p.etherType = 0x0806 // bytes behind the type of a tag are a tag
		}
	}
	for i, v := range m.VLAN {
		if i == len(p.tags) {
			p.tags = append(p.tags, drawTagHeader(rng))
		}
		t := &p.tags[i]
		t.typ = one[uint16](rng, 0x8100, 0x88a8)
		tci := flow.Masked[uint16]{
			Value: v.ID.Value | uint16(v.PCP.Value)<<13 | uint16(v.DEI.Value)<<12,
			Mask:  v.ID.Mask | uint16(v.PCP.Mask)<<13 | uint16(v.DEI.Mask)<<12,
		}
		mix(&t.tci, tci)
	}
	p.satisfyIP(rng, m)
	p.satisfyUpper(rng, m)
	if m.Incomplete {
		p.shorten(rng, m)
	}
}

// shorten makes the packet match "incomplete": it adds more headers than parsers walk over, or cuts a header off.
func (p *headers) shorten(rng *rand.Rand, m *flow.Match) {
	bare := m.TCP != nil || m.UDP != nil || m.SCTP != nil || m.ICMP != nil || m.ESP != nil || m.AH != nil
	if m.ARP != nil {
		p.cut = true
		return
	}
	switch way := rng.IntN(3); {
	case way == 0 && !bare && m.IPv4 == nil && m.IPv6 == nil && (m.Eth == nil || m.Eth.Type.Mask == 0):
		for len(p.tags) < 3 {
			p.tags = append(p.tags, drawTagHeader(rng))
		}
		for i := range p.tags {
			p.tags[i].typ = one[uint16](rng, 0x8100, 0x88a8)
		}
	case way == 1 && !bare && p.ip == 6 && (m.IPv6 == nil || m.IPv6.NextHeader.Mask == 0 || len(p.exts) > 0):
		for len(p.exts) < 9 {
			p.exts = append(p.exts, ext{typ: 60})
		}
	default:
		if p.ip == 0 && (m.Eth == nil || m.Eth.Type.Mask == 0) {
			p.ip = one(rng, 4, 6)
		}
		if !bare && (m.IPv4 == nil || m.IPv4.Proto.Mask == 0) && (m.IPv6 == nil || m.IPv6.NextHeader.Mask == 0) {
			p.upper = one[uint8](rng, 6, 17, 50, 132)
		}
		p.offset, p.inner, p.cut = 0, nil, true
		if m.IPv4 != nil && m.IPv4.Fragment == flow.FragmentYes {
			p.more = true
		}
	}
}

func (p *headers) satisfyIP(rng *rand.Rand, m *flow.Match) {
	if ip := m.IPv4; ip != nil {
		p.ip = 4
		mixBytes(p.src4[:], ip.Src.Addr[:], ip.Src.Mask[:])
		mixBytes(p.dst4[:], ip.Dst.Addr[:], ip.Dst.Mask[:])
		mix(&p.upper, ip.Proto)
		mix(&p.tos, ip.TOS)
		mix(&p.ttl, ip.TTL)
		switch ip.Fragment {
		case flow.FragmentNo:
			p.more, p.offset = false, 0
		case flow.FragmentYes:
			p.more = p.more || p.offset == 0
		case flow.FragmentFirst:
			p.more, p.offset = true, 0
		case flow.FragmentLater:
			p.offset = max(p.offset, 1)
		}
	}
	if ip := m.IPv6; ip != nil {
		p.ip = 6
		mixBytes(p.src6[:], ip.Src.Addr[:], ip.Src.Mask[:])
		mixBytes(p.dst6[:], ip.Dst.Addr[:], ip.Dst.Mask[:])
		mix(&p.label, ip.FlowLabel)
		mix(&p.tos, ip.TrafficClass)
		mix(&p.ttl, ip.HopLimit)
		if ip.NextHeader.Mask != 0 {
			p.exts = nil
			mix(&p.upper, ip.NextHeader)
			if e := (ext{typ: p.upper}); isExtension(p.upper) {
				p.exts = []ext{e}
				p.upper = drawProto(rng)
			}
		}
		p.satisfyFragment6(rng, ip.Fragment)
	}
}

// satisfyFragment6 changes the fragment headers until the packet is the wanted kind of fragment.
func (p *headers) satisfyFragment6(rng *rand.Rand, kind flow.Fragment) {
	if kind == flow.FragmentAny {
		return
	}
	last := -1
	for i := range p.exts {
		if p.exts[i].typ == 44 {
			p.exts[i].more, p.exts[i].offset = false, 0
			last = i
		}
	}
	if kind == flow.FragmentNo {
		return
	}
	if last < 0 {
		p.exts = append(p.exts[:min(len(p.exts), 7)], ext{typ: 44})
		last = len(p.exts) - 1
	}
	e := &p.exts[last]
	if kind == flow.FragmentYes {
		kind = one(rng, flow.FragmentFirst, flow.FragmentLater)
	}
	e.more = kind == flow.FragmentFirst || often(rng, 2)
	if kind == flow.FragmentLater {
		e.offset = 1 + uint16(rng.IntN(0x1fff))
	}
}

func isExtension(n uint8) bool {
	switch n {
	case 0, 43, 44, 51, 60, 135, 139, 140:
		return true
	}
	return false
}

func (p *headers) satisfyUpper(rng *rand.Rand, m *flow.Match) {
	upper := m.TCP != nil || m.UDP != nil || m.SCTP != nil || m.ICMP != nil || m.ESP != nil || m.AH != nil || m.GRE != nil || m.IPIP != nil || m.TunnelPort() != 0
	if upper && p.ip == 0 {
		p.ip = one(rng, 4, 6)
	}
	if upper && (m.IPv4 == nil || m.IPv4.Fragment == flow.FragmentAny) && !often(rng, 4) {
		p.offset = 0
	}
	if ports := m.TCP; ports != nil {
		p.upper, p.inner = 6, nil
		mixPort(rng, &p.sport, ports.Src)
		mixPort(rng, &p.dport, ports.Dst)
		mix(&p.flags, ports.Flags)
	}
	if sctp := m.SCTP; sctp != nil {
		p.upper, p.inner = 132, nil
		mixPort(rng, &p.sport, sctp.Src)
		mixPort(rng, &p.dport, sctp.Dst)
		mix(&p.vtag, sctp.Tag)
	}
	if ah := m.AH; ah != nil {
		p.upper, p.inner = 51, nil
		mix(&p.spi, ah.SPI)
	}
	if esp := m.ESP; esp != nil {
		p.upper, p.inner = 50, nil
		mix(&p.spi, esp.SPI)
	}
	if icmp := m.ICMP; icmp != nil {
		p.upper, p.inner = 1, nil
		if p.ip == 6 {
			p.upper = 58
		}
		mix(&p.typ, icmp.Type)
		mix(&p.code, icmp.Code)
	}
	if ports := m.UDP; ports != nil {
		p.upper, p.gre = 17, greHeader{}
		if p.kind.port() == 0 {
			p.inner = nil
		}
		mixPort(rng, &p.sport, ports.Src)
		mixPort(rng, &p.dport, ports.Dst)
	}
	if m.VXLAN != nil {
		p.tunnel(rng, vxlan)
		mix(&p.vni, m.VXLAN.VNI)
	}
	if m.GRE != nil {
		p.tunnel(rng, gre)
		if m.GRE.Key.Mask != 0 {
			p.gre.flags |= 0x2000
			mix(&p.gre.key, m.GRE.Key)
		}
	}
	if m.IPIP != nil {
		p.tunnel(rng, ipip)
	}
	if m.Geneve != nil {
		p.tunnel(rng, geneve)
		mix(&p.vni, m.Geneve.VNI)
	}
	if m.GTPU != nil {
		p.tunnel(rng, gtpu)
		mix(&p.teid, m.GTPU.TEID)
	}
	if m.MPLSUDP != nil {
		p.tunnel(rng, mplsudp)
		p.satisfyStack(m.MPLSUDP)
	}
	if in := m.Inner(); in != nil {
		p.inner.satisfy(rng, in)
		p.announce(rng, in)
	}
}

// satisfyStack changes the first entry of the label stack. If it is to be the bottom, or not to be, the stack changes too.
func (p *headers) satisfyStack(m *flow.MPLSUDP) {
	mix(&p.stack[0], entryOf(&m.MPLS))
	if p.stack[0]&0x100 != 0 {
		p.stack = p.stack[:1]
	} else if len(p.stack) == 1 {
		p.stack = append(p.stack, 0x100)
	}
}

// announce makes the tunnel's header say what is inside, once it satisfies the match in.
func (p *headers) announce(rng *rand.Rand, in *flow.Match) {
	typ := &p.gre.typ
	switch p.kind {
	case gre:
	case geneve:
		typ = &p.geneve.typ
	case ipip:
		switch p.inner.ip {
		case 4:
			p.upper = 4
		case 6:
			p.upper = 41
		}
		return
	default:
		return
	}
	switch {
	case in.Eth != nil || len(in.VLAN) > 0 || in.ARP != nil:
		*typ = 0x6558
	case in.MPLS != nil && *typ != 0x6558:
		*typ = one[uint16](rng, 0x8847, 0x8848)
	case *typ == 0x6558:
	case p.inner.ip == 4:
		*typ = 0x0800
	case p.inner.ip == 6:
		*typ = 0x86dd
	}
}

// entryOf returns a label stack entry under its mask.
func entryOf(e *flow.MPLS) flow.Masked[uint32] {
	return flow.Masked[uint32]{
		Value: e.Label.Value<<12 | uint32(e.TC.Value)<<9 | uint32(e.Bottom.Value)<<8 | uint32(e.TTL.Value),
		Mask:  e.Label.Mask<<12 | uint32(e.TC.Mask)<<9 | uint32(e.Bottom.Mask)<<8 | uint32(e.TTL.Mask),
	}
}

// tweak changes one thing, so that a matching packet may just miss its flow.
func (p *headers) tweak(rng *rand.Rand) {
	other := drawHeaders(rng, true)
	if p.inner != nil && often(rng, 2) {
		p.inner.tweak(rng)
		return
	}
	switch rng.IntN(26) {
	case 19:
		p.teid ^= 1 << rng.IntN(32)
	case 20:
		p.geneve.first ^= 1 << rng.IntN(8)
	case 21:
		p.gtpu.flags ^= 1 << rng.IntN(8)
	case 22:
		p.gtpu.exts = append(p.gtpu.exts, one[uint8](rng, 0, 1, 2))
	case 23:
		if len(p.stack) > 0 {
			p.stack[rng.IntN(len(p.stack))] ^= 1 << rng.IntN(32)
		}
	case 24:
		p.vtag ^= 1 << rng.IntN(32)
	case 25:
		p.op, p.otherARP = other.op, often(rng, 2)
	case 16:
		p.flags ^= 1 << rng.IntN(8)
	case 17:
		p.spi ^= 1 << rng.IntN(32)
	case 18:
		p.entries[0] ^= 1 << rng.IntN(32)
	case 0:
		p.src, p.dst = other.src, other.dst
	case 1:
		p.tags = other.tags
	case 2:
		p.ip = other.ip
	case 3:
		p.src4, p.src6 = other.src4, other.src6
	case 4:
		p.dst4, p.dst6 = other.dst4, other.dst6
	case 5:
		p.tos, p.ttl, p.label = other.tos, other.ttl, other.label
	case 6:
		p.options = 4 * (1 + rng.IntN(10))
	case 7:
		p.more, p.offset = often(rng, 2), one[uint16](rng, 0, 1, 0x1fff)
	case 8:
		p.exts = append(p.exts, drawExt(rng))
	case 9:
		p.upper = other.upper
	case 10:
		p.sport += one(rng, 1, ^uint16(0), 1000)
	case 11:
		p.dport += one(rng, 1, ^uint16(0), 1000)
	case 12:
		p.typ, p.code = other.typ, other.code
	case 13:
		p.vni, p.gre.key = p.vni^1, p.gre.key^1
	case 14:
		p.gre.flags ^= one[uint16](rng, 0x8000, 0x4000, 0x2000, 0x1000, 1)
	case 15:
		p.etherType, p.gre.typ = other.etherType, one[uint16](rng, 0x0800, 0x86dd, 0x6558, 0x8847)
		p.geneve.typ = p.gre.typ
	}
}

func mix[T ~uint8 | ~uint16 | ~uint32](field *T, want flow.Masked[T]) {
	*field = *field&^want.Mask | want.Value
}

func mixBytes(field, value, mask []byte) {
	for i := range field {
		field[i] = field[i]&^mask[i] | value[i]
	}
}

func mixPort(rng *rand.Rand, field *uint16, want flow.Port) {
	if want.Last != 0 {
		span := int(want.Last - want.Value)
		*field = one(rng, want.Value, want.Last, want.Value+uint16(rng.IntN(span+1)))
		return
	}
	*field = *field&^want.Mask | want.Value
}
