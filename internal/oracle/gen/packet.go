package gen

import (
	"math/rand/v2"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// shortest is the length of the shortest frame: a bare Ethernet header. The kernel refuses a test run with less.
const shortest = 14

// Packet draws an Ethernet frame of at least 14 bytes: whole, cut short or damaged. Most frames match one of flows or just miss it.
// flows may be empty.
func Packet(rng *rand.Rand, flows []flow.Flow) []byte {
	p := drawHeaders(rng, true)
	if len(flows) > 0 && !often(rng, 4) {
		p.satisfy(rng, &flows[rng.IntN(len(flows))].Match)
		if often(rng, 3) {
			p.tweak(rng)
		}
	}
	b := p.frame(rng)
	if often(rng, 4) {
		b = append(b, noise(rng, 1+rng.IntN(46))...) // padding
	}
	return damage(rng, b)
}

// headers are the fields that a frame is built from.
type headers struct {
	src, dst  [6]byte
	tags      []tag
	etherType uint16   // of a frame that is neither IPv4 nor IPv6
	entries   []uint32 // of the label stack, in a frame of MPLS

	ip       int // 0, 4 or 6
	src4     [4]byte
	dst4     [4]byte
	src6     [16]byte
	dst6     [16]byte
	tos, ttl uint8
	label    uint32
	options  int    // bytes of IPv4 options
	more     bool   // more fragments of IPv4 follow
	offset   uint16 // of a fragment of IPv4
	exts     []ext  // of IPv6

	upper     uint8 // protocol above IP
	sport     uint16
	dport     uint16
	flags     flow.TCPFlags
	spi       uint32 // of ESP, and of AH over IPv4
	vtag      uint32 // of SCTP
	op        uint16 // of ARP, whose addresses are src4 and dst4
	otherARP  bool   // ARP of other addresses than IPv4 and MACs
	typ, code uint8  // of ICMP
	cut       bool   // the header above IP is cut short

	// A tunnel. inner is nil without one.
	kind   tunnelKind
	vni    uint32
	teid   uint32
	gre    greHeader
	geneve geneveHeader
	gtpu   gtpuHeader
	stack  []uint32 // of MPLS over UDP, down to the bottom
	inner  *headers
}

type tunnelKind int

const (
	gre tunnelKind = iota
	vxlan
	ipip
	geneve
	gtpu
	mplsudp
	tunnelKinds
)

// port returns the destination port of a tunnel over UDP, or 0.
func (k tunnelKind) port() uint16 {
	return [...]uint16{gre: 0, vxlan: 4789, ipip: 0, geneve: 6081, gtpu: 2152, mplsudp: 6635}[k]
}

// geneveHeader has the first byte of the header: version and length of the options.
type geneveHeader struct {
	first uint8
	typ   uint16
}

// gtpuHeader has the first two bytes of the header, and the lengths of the extension headers in words.
type gtpuHeader struct {
	flags, typ uint8
	exts       []uint8
}

type tag struct{ typ, tci uint16 }

// ext is an extension header of IPv6.
type ext struct {
	typ    uint8
	words  int    // its length field
	more   bool   // of a fragment header
	offset uint16 // of a fragment header
}

type greHeader struct {
	flags, typ uint16
	key        uint32
}

func drawHeaders(rng *rand.Rand, outer bool) *headers {
	p := &headers{ // in the order of the draws, which a seed fixes
		src:       drawMAC(rng),
		dst:       drawMAC(rng),
		etherType: drawEtherType(rng),
		ip:        one(rng, 0, 4, 4, 4, 4, 6, 6, 6),
		src4:      drawAddr4(rng),
		dst4:      drawAddr4(rng),
		src6:      drawAddr6(rng),
		dst6:      drawAddr6(rng),
		tos:       drawByte(rng),
		ttl:       drawByte(rng),
		label:     drawLabel(rng),
		upper:     drawProto(rng),
		sport:     drawPort(rng),
		dport:     drawPort(rng),
		typ:       drawByte(rng),
		code:      drawByte(rng),
		vni:       drawVNI(rng),
		teid:      drawTEID(rng),
		flags:     drawFlags(rng),
		spi:       drawSPI(rng),
		vtag:      drawSPI(rng),
		op:        drawOperation(rng),
		otherARP:  often(rng, 12),
	}
	for range one(rng, 1, 1, 2, 3) {
		p.entries = append(p.entries, drawEntry(rng))
	}
	if often(rng, 3) {
		for range one(rng, 1, 1, 1, 2, 2, 3) {
			p.tags = append(p.tags, drawTagHeader(rng))
		}
	}
	if often(rng, 6) {
		p.options = 4 * (1 + rng.IntN(10))
	}
	if often(rng, 6) {
		p.more, p.offset = often(rng, 2), one(rng, 0, 1, 0x1000, uint16(rng.IntN(0x2000)))
	}
	if often(rng, 4) {
		for range one(rng, 1, 1, 2, 3, 7, 8, 9, 10) {
			p.exts = append(p.exts, drawExt(rng))
		}
	}
	if outer && often(rng, 4) {
		p.tunnel(rng, tunnelKind(rng.IntN(int(tunnelKinds))))
	}
	return p
}

func drawTagHeader(rng *rand.Rand) tag {
	return tag{one[uint16](rng, 0x8100, 0x8100, 0x88a8, 0x9100), drawTag(rng) | uint16(rng.IntN(16))<<12}
}

func drawExt(rng *rand.Rand) ext {
	e := ext{typ: one[uint8](rng, 0, 43, 60, 135, 139, 140, 51, 44), words: one(rng, 0, 0, 0, 1, 2, 5)}
	if e.typ == 51 {
		e.words = one(rng, 0, 1, 2, 4, 7)
	}
	if e.typ == 44 && often(rng, 2) {
		e.more, e.offset = often(rng, 2), one(rng, 0, 0, 1, 0x1000, uint16(rng.IntN(0x2000)))
	}
	return e
}

// tunnel puts a tunnel above IP, and a packet into it.
func (p *headers) tunnel(rng *rand.Rand, kind tunnelKind) {
	if p.ip == 0 {
		p.ip = one(rng, 4, 6)
	}
	p.inner = drawHeaders(rng, often(rng, 8))
	p.kind = kind
	if port := kind.port(); port != 0 {
		p.upper, p.dport = 17, port
	}
	switch kind {
	case gre:
		p.drawGRE(rng)
	case ipip:
		p.carryIP(rng)
		p.upper = 4
		if p.inner.ip == 6 {
			p.upper = 41
		}
	case geneve:
		p.drawGeneve(rng)
	case gtpu:
		p.carryIP(rng)
		p.drawGTPU(rng)
	case mplsudp:
		p.carryIP(rng)
		p.stack = nil
		for range one(rng, 1, 1, 1, 2, 3, 7, 8, 9) {
			p.stack = append(p.stack, drawEntry(rng)&^0x100)
		}
		p.stack[len(p.stack)-1] |= 0x100
	}
}

// carryIP gives a tunnel that carries IP alone an inner packet of IP, mostly.
func (p *headers) carryIP(rng *rand.Rand) {
	if p.inner.ip == 0 && !often(rng, 8) {
		p.inner.ip = one(rng, 4, 6)
	}
}

func (p *headers) drawGeneve(rng *rand.Rand) {
	p.geneve = geneveHeader{
		first: one[uint8](rng, 0, 0, 0, 1, 2, 7, 63, uint8(rng.IntN(64))),
		typ:   one[uint16](rng, 0x0800, 0x86dd, 0x6558, 0x6558, 0x6558, 0x8847, 0x88cc),
	}
	if often(rng, 16) {
		p.geneve.first |= uint8(1+rng.IntN(3)) << 6
	}
}

func (p *headers) drawGTPU(rng *rand.Rand) {
	p.gtpu = gtpuHeader{flags: 0x30 | one[uint8](rng, 0, 0, 0, 1, 2, 3, 4, 4, 4, 5, 6, 7, 8), typ: 255}
	for range one(rng, 0, 1, 1, 1, 2, 3, 4, 5) {
		p.gtpu.exts = append(p.gtpu.exts, one[uint8](rng, 1, 1, 1, 2, 3, 0))
	}
	switch rng.IntN(16) {
	case 0:
		p.gtpu.flags ^= one[uint8](rng, 0x10, 0x20, 0x40, 0x80) // another version, or GTP'
	case 1:
		p.gtpu.typ = one[uint8](rng, 1, 2, 26, 31, 254) // echo, error indication, end marker
	}
}

func (p *headers) drawGRE(rng *rand.Rand) {
	p.upper = 47
	p.gre = greHeader{typ: one[uint16](rng, 0x0800, 0x86dd, 0x6558, 0x6558, 0x8847, 0x8848, 0x88cc), key: drawKey(rng)}
	for _, flag := range []uint16{0x8000, 0x2000, 0x2000, 0x1000} {
		if often(rng, 3) {
			p.gre.flags |= flag
		}
	}
	switch rng.IntN(16) {
	case 0:
		p.gre.flags |= 0x4000 // routing
	case 1:
		p.gre.flags |= uint16(1 + rng.IntN(7)) // version
	case 2:
		p.gre.flags |= 0x0800 // strict source route: not looked at
	}
}
