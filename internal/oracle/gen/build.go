package gen

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// frame builds the bytes of an Ethernet frame.
func (p *headers) frame(rng *rand.Rand) []byte {
	stack := p.link(rng)
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, stack...); err != nil {
		panic("serializing drawn headers: " + err.Error()) // a bug of this package
	}
	return buf.Bytes()
}

func (p *headers) link(rng *rand.Rand) []gopacket.SerializableLayer {
	typ := p.etherType
	switch p.ip {
	case 4:
		typ = 0x0800
	case 6:
		typ = 0x86dd
	}
	eth := make([]byte, 0, 14+4*len(p.tags))
	eth = append(append(eth, p.dst[:]...), p.src[:]...)
	for _, t := range p.tags {
		eth = binary.BigEndian.AppendUint16(eth, t.typ)
		eth = binary.BigEndian.AppendUint16(eth, t.tci)
	}
	// Written by hand: gopacket pads an Ethernet layer, inside a tunnel too.
	eth = binary.BigEndian.AppendUint16(eth, typ)
	return append([]gopacket.SerializableLayer{gopacket.Payload(eth)}, p.network(rng)...)
}

func (p *headers) network(rng *rand.Rand) []gopacket.SerializableLayer {
	var stack []gopacket.SerializableLayer
	switch p.ip {
	case 4:
		ip := &layers.IPv4{
			Version: 4, TOS: p.tos, TTL: p.ttl, Protocol: layers.IPProtocol(p.upper),
			SrcIP: p.src4[:], DstIP: p.dst4[:], FragOffset: p.offset, Id: uint16(rng.Uint32()),
		}
		if p.more {
			ip.Flags |= layers.IPv4MoreFragments
		}
		if often(rng, 4) {
			ip.Flags |= layers.IPv4DontFragment
		}
		for range p.options {
			ip.Options = append(ip.Options, layers.IPv4Option{OptionType: 1}) // no-operation
		}
		stack = append(stack, ip)
	case 6:
		ip := &layers.IPv6{
			Version: 6, TrafficClass: p.tos, FlowLabel: p.label, HopLimit: p.ttl,
			SrcIP: p.src6[:], DstIP: p.dst6[:],
		}
		next := p.upper
		var exts []byte
		for i := len(p.exts) - 1; i >= 0; i-- {
			exts = append(p.exts[i].bytes(rng, next), exts...)
			next = p.exts[i].typ
		}
		ip.NextHeader = layers.IPProtocol(next)
		stack = append(stack, ip, gopacket.Payload(exts))
	default:
		if mpls(p.etherType) {
			return p.labels(rng)
		}
		if p.etherType == 0x0806 {
			return p.arp(rng)
		}
		return []gopacket.SerializableLayer{noise(rng, 1+rng.IntN(60))}
	}
	return append(stack, p.transport(rng)...)
}

func mpls(etherType uint16) bool { return etherType == 0x8847 || etherType == 0x8848 }

// labels returns a label stack, and noise behind it that looks like IPv4. With p.cut the first entry is cut short.
func (p *headers) labels(rng *rand.Rand) []gopacket.SerializableLayer {
	var b gopacket.Payload
	for _, e := range p.entries {
		b = binary.BigEndian.AppendUint32(b, e)
	}
	if p.cut {
		return []gopacket.SerializableLayer{b[:rng.IntN(4)]}
	}
	return []gopacket.SerializableLayer{b, append(gopacket.Payload{0x45, 0}, noise(rng, 18+rng.IntN(40))...)}
}

// arp returns a packet of ARP. With p.cut it is cut short.
func (p *headers) arp(rng *rand.Rand) []gopacket.SerializableLayer {
	b := gopacket.Payload{0, 1, 8, 0, 6, 4}
	if p.otherARP {
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	}
	b = binary.BigEndian.AppendUint16(b, p.op)
	b = append(append(b, p.src[:]...), p.src4[:]...)
	b = append(append(b, p.dst[:]...), p.dst4[:]...)
	if p.cut {
		b = b[:rng.IntN(len(b))]
	}
	return []gopacket.SerializableLayer{b}
}

func (e ext) bytes(rng *rand.Rand, next uint8) []byte {
	length := 8 * (e.words + 1)
	switch e.typ {
	case 51:
		length = 4 * (e.words + 2)
	case 44:
		length = 8
	}
	b := noise(rng, length)
	b[0], b[1] = next, byte(e.words)
	if e.typ == 44 {
		v := e.offset << 3
		if e.more {
			v |= 1
		}
		binary.BigEndian.PutUint16(b[2:], v)
	}
	return b
}

func (p *headers) transport(rng *rand.Rand) []gopacket.SerializableLayer {
	if p.cut {
		if p.upper != 6 {
			return []gopacket.SerializableLayer{noise(rng, rng.IntN(shortestUpper(p.upper)))}
		}
		// Cut TCP behind the ports or within them, but before the flags.
		b := binary.BigEndian.AppendUint16(nil, p.sport)
		b = append(binary.BigEndian.AppendUint16(b, p.dport), noise(rng, 9)...)
		return []gopacket.SerializableLayer{gopacket.Payload(b[:rng.IntN(14)])}
	}
	payload := noise(rng, rng.IntN(64))
	switch p.upper {
	case 6:
		// By hand: gopacket writes no reserved bits.
		b := binary.BigEndian.AppendUint16(nil, p.sport)
		b = binary.BigEndian.AppendUint16(b, p.dport)
		b = append(b, noise(rng, 8)...)
		b = binary.BigEndian.AppendUint16(b, 5<<12|uint16(p.flags))
		return []gopacket.SerializableLayer{gopacket.Payload(append(b, noise(rng, 6)...)), payload}
	case 132:
		b := binary.BigEndian.AppendUint16(nil, p.sport)
		b = binary.BigEndian.AppendUint16(b, p.dport)
		b = binary.BigEndian.AppendUint32(b, p.vtag)
		return []gopacket.SerializableLayer{gopacket.Payload(b), payload}
	case 50:
		return []gopacket.SerializableLayer{gopacket.Payload(binary.BigEndian.AppendUint32(nil, p.spi)), payload}
	case 51:
		if p.ip != 4 {
			break // it would be an extension header
		}
		b := append(gopacket.Payload{59, 1, 0, 0}, binary.BigEndian.AppendUint32(nil, p.spi)...)
		return []gopacket.SerializableLayer{b, payload}
	case 17:
		udp := &layers.UDP{SrcPort: layers.UDPPort(p.sport), DstPort: layers.UDPPort(p.dport)}
		if p.inner == nil || p.kind.port() == 0 {
			return []gopacket.SerializableLayer{udp, payload}
		}
		return append([]gopacket.SerializableLayer{udp}, p.overUDP(rng)...)
	case 4, 41:
		if p.inner == nil || p.kind != ipip {
			break
		}
		return p.inner.network(rng)
	case 1:
		return []gopacket.SerializableLayer{&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(p.typ, p.code)}, payload}
	case 58:
		return []gopacket.SerializableLayer{&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(p.typ, p.code)}, payload}
	case 47:
		if p.inner == nil {
			break
		}
		// By hand: gopacket writes no GRE header with a routing bit or a wrong version.
		b := binary.BigEndian.AppendUint16(nil, p.gre.flags)
		b = binary.BigEndian.AppendUint16(b, p.gre.typ)
		for _, flag := range []uint16{0x8000, 0x2000, 0x1000} {
			switch {
			case p.gre.flags&flag == 0:
			case flag == 0x2000:
				b = binary.BigEndian.AppendUint32(b, p.gre.key)
			default:
				b = binary.BigEndian.AppendUint32(b, rng.Uint32())
			}
		}
		return append([]gopacket.SerializableLayer{gopacket.Payload(b)}, p.typed(rng, p.gre.typ)...)
	}
	return []gopacket.SerializableLayer{payload}
}

// overUDP returns the header of a tunnel over UDP, and the packet inside.
func (p *headers) overUDP(rng *rand.Rand) []gopacket.SerializableLayer {
	var b gopacket.Payload
	switch p.kind {
	case vxlan:
		header := &layers.VXLAN{ValidIDFlag: !often(rng, 12), VNI: p.vni}
		return append([]gopacket.SerializableLayer{header}, p.inner.link(rng)...)
	case geneve:
		b = append(b, p.geneve.first, uint8(rng.Uint32()))
		b = binary.BigEndian.AppendUint16(b, p.geneve.typ)
		b = binary.BigEndian.AppendUint32(b, p.vni<<8|rng.Uint32()&0xff)
		b = append(b, noise(rng, 4*int(p.geneve.first&0x3f))...)
		return append([]gopacket.SerializableLayer{b}, p.typed(rng, p.geneve.typ)...)
	case gtpu:
		b = append(b, p.gtpu.flags, p.gtpu.typ, 0, 0)
		b = binary.BigEndian.AppendUint32(b, p.teid)
		if p.gtpu.flags&7 != 0 {
			b = append(b, noise(rng, 3)...)
			b = append(b, p.gtpu.extension(0))
		}
		for i, words := range p.gtpu.exts {
			if p.gtpu.flags&4 == 0 {
				break
			}
			ext := noise(rng, 4*max(1, int(words)))
			ext[0], ext[len(ext)-1] = words, p.gtpu.extension(i+1)
			b = append(b, ext...)
		}
	case mplsudp:
		for _, e := range p.stack {
			b = binary.BigEndian.AppendUint32(b, e)
		}
	}
	return append([]gopacket.SerializableLayer{b}, p.inner.network(rng)...)
}

// extension returns the type of extension header i, or 0 if there are no more.
func (h *gtpuHeader) extension(i int) uint8 {
	if i < len(h.exts) {
		return 0x85 // a PDU session container
	}
	return 0
}

// typed returns the packet inside a tunnel that says its EtherType.
func (p *headers) typed(rng *rand.Rand, typ uint16) []gopacket.SerializableLayer {
	switch {
	case typ == 0x6558:
		return p.inner.link(rng)
	case mpls(typ):
		return p.inner.labels(rng)
	}
	return p.inner.network(rng)
}

// shortestUpper returns the length of the shortest header above IP whose fields are there.
func shortestUpper(proto uint8) int {
	if proto == 132 || proto == 51 {
		return 8
	}
	return 4
}

func noise(rng *rand.Rand, n int) gopacket.Payload {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// damage cuts some frames short, and changes bytes of others.
func damage(rng *rand.Rand, b []byte) []byte {
	if often(rng, 4) && len(b) > shortest {
		b = b[:shortest+rng.IntN(len(b)-shortest)]
	}
	if often(rng, 8) {
		for range 1 + rng.IntN(3) {
			b[rng.IntN(len(b))] ^= byte(1) << rng.IntN(8)
		}
	}
	if often(rng, 24) && len(b) > shortest {
		b[shortest] = one(rng, 0x44, 0x40, 0x4f, 0x55, 0x65, 0x00, byte(rng.Uint32())) // version and IHL
	}
	return b
}
