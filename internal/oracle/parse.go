package oracle

import "encoding/binary"

// headers is the parsed headers of a frame, or of a packet inside a tunnel. An absent or cut header is nil.
type headers struct {
	eth  *ethHeader
	tags []tagHeader
	mpls *mplsHeader
	ip4  *ip4Header
	ip6  *ip6Header

	// Headers that others announce. They may be absent all the same; see incomplete.
	link    bool   // Ethernet
	network uint16 // the EtherType, or 0
	upper   int    // the protocol above IP, or -1

	cutARP bool // the EtherType is that of ARP, and the packet is too short for it

	later bool // a fragment at an offset above 0
	room  int  // bytes above IP, as the lengths in IP say; the frame may have padding behind them

	arp   *arpHeader
	ports *portsHeader // of TCP, UDP and SCTP
	flags *uint16      // of TCP, 12 bits
	vtag  *uint32      // of SCTP
	spi   *uint32      // of ESP, and of AH over IPv4
	icmp  *icmpHeader

	// Tunnels. They are nil if the header is absent, and inside a tunnel.
	vxlan, gre, ipip, geneve, gtpu, mplsudp *tunnelHeader

	// unreached says that these are the headers inside a tunnel, and something between its header and them is cut or too long.
	unreached bool
}

type ethHeader struct {
	dst, src []byte
	typ      uint16 // the one behind the tags
}

type tagHeader struct {
	pcp, dei uint8
	id       uint16
}

// mplsHeader is the first entry of the label stack.
type mplsHeader struct {
	label           uint32
	tc, bottom, ttl uint8
}

// arpHeader is a packet of ARP for IPv4 and MACs.
type arpHeader struct {
	op             uint16
	sender, target []byte
}

type ip4Header struct {
	src, dst        []byte
	proto, tos, ttl uint8
	more            bool
	offset          uint16
}

type ip6Header struct {
	src, dst                    []byte
	label                       uint32
	nextHeader, class, hopLimit uint8
	more                        bool // by the fragment header
}

type portsHeader struct{ src, dst uint16 }

type icmpHeader struct{ typ, code uint8 }

type tunnelHeader struct {
	hasKey bool
	key    uint32     // GRE key, VNI or TEID
	entry  mplsHeader // of MPLS over UDP, the first of the stack
	inner  *headers
}

var be = binary.BigEndian

// parseFrame parses an Ethernet frame. With tunnels it also parses what is inside a tunnel, but no tunnel within the tunnel.
func parseFrame(b []byte, tunnels bool) *headers {
	h := &headers{upper: -1, link: true}
	if len(b) < 14 {
		return h
	}
	h.eth = &ethHeader{
		dst: b[0:6],
		src: b[6:12],
		typ: be.Uint16(b[12:]),
	}
	b = b[14:]

	for len(h.tags) < 2 && (h.eth.typ == 0x8100 || h.eth.typ == 0x88a8) && len(b) >= 4 {
		tci := be.Uint16(b)
		h.tags = append(h.tags, tagHeader{pcp: uint8(tci >> 13), dei: uint8(tci >> 12 & 1), id: tci & 0x0fff})
		h.eth.typ = be.Uint16(b[2:])
		b = b[4:]
	}
	h.parseNetwork(h.eth.typ, b, tunnels)
	return h
}

// parseIP parses a frame without Ethernet. The first byte has the version.
func parseIP(b []byte, tunnels bool) *headers {
	h := &headers{upper: -1}
	if len(b) == 0 {
		return h
	}
	h.parseNetwork(map[byte]uint16{4: 0x0800, 6: 0x86dd}[b[0]>>4], b, tunnels)
	return h
}

// parseNetwork parses the header announced by an EtherType.
func (h *headers) parseNetwork(typ uint16, b []byte, tunnels bool) {
	h.network = typ
	switch typ {
	case 0x0800:
		h.parseIPv4(b, tunnels)
	case 0x86dd:
		h.parseIPv6(b, tunnels)
	case 0x0806:
		if h.link {
			h.parseARP(b)
		}
	case 0x8847, 0x8848:
		if len(b) >= 4 {
			entry := parseEntry(b)
			h.mpls = &entry
		}
	}
}

// parseEntry parses an entry of a label stack.
func parseEntry(b []byte) mplsHeader {
	entry := be.Uint32(b)
	return mplsHeader{
		label:  entry >> 12,
		tc:     uint8(entry >> 9 & 7),
		bottom: uint8(entry >> 8 & 1),
		ttl:    uint8(entry),
	}
}

// incomplete reports whether a header was announced, but is absent or could not be reached.
func (h *headers) incomplete() bool {
	switch {
	case h.unreached:
		return true
	case h.link && h.eth == nil:
		return true
	case h.network == 0x8100, h.network == 0x88a8:
		return true
	case h.network == 0x8847, h.network == 0x8848:
		return h.mpls == nil
	case h.cutARP:
		return true
	case h.network == 0x0800 && h.ip4 == nil, h.network == 0x86dd && h.ip6 == nil:
		return true
	case h.ip6 != nil && h.upper < 0:
		return true
	case h.later:
		return false
	case h.upper == 6:
		return h.flags == nil
	case h.upper == 17:
		return h.ports == nil
	case h.upper == 132:
		return h.vtag == nil
	case h.upper == 50, h.upper == 51:
		return h.spi == nil
	case h.upper == 1 && h.ip4 != nil, h.upper == 58 && h.ip6 != nil:
		return h.icmp == nil
	}
	return false
}

// parseARP parses a packet of ARP. It has fields if its addresses are MACs and those of IPv4.
func (h *headers) parseARP(b []byte) {
	if len(b) < 28 {
		h.cutARP = true
		return
	}
	if protocol := be.Uint16(b[2:]); protocol != 0x0800 || b[4] != 6 || b[5] != 4 {
		return
	}
	h.arp = &arpHeader{
		op:     be.Uint16(b[6:]),
		sender: b[14:18],
		target: b[24:28],
	}
}

func (h *headers) parseIPv4(b []byte, tunnels bool) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return
	}
	length := int(b[0]&0x0f) * 4
	if length < 20 || len(b) < length {
		return
	}
	frag := be.Uint16(b[6:])
	h.ip4 = &ip4Header{
		tos:    b[1],
		ttl:    b[8],
		proto:  b[9],
		src:    b[12:16],
		dst:    b[16:20],
		more:   frag&0x2000 != 0,
		offset: frag & 0x1fff,
	}
	h.upper = int(b[9])
	h.later = h.ip4.offset > 0
	h.room = int(be.Uint16(b[2:])) - length
	h.parseUpper(b[length:], tunnels)
}

func (h *headers) parseIPv6(b []byte, tunnels bool) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return
	}
	first := be.Uint32(b)
	h.ip6 = &ip6Header{
		class:      uint8(first >> 20),
		label:      first & 0xfffff,
		nextHeader: b[6],
		hopLimit:   b[7],
		src:        b[8:24],
		dst:        b[24:40],
	}
	end := 40 + int(be.Uint16(b[4:])) - len(b) // negative if the frame has padding behind the packet

	// Walk over at most eight extension headers, as docs/flows.md says.
	next, b := b[6], b[40:]
	for walked := 0; ; walked++ {
		length := 0
		switch next {
		case 0, 43, 60, 135, 139, 140:
			if len(b) >= 8 {
				length = (int(b[1]) + 1) * 8
			}
		case 51:
			if len(b) >= 8 {
				length = (int(b[1]) + 2) * 4
			}
		case 44:
			length = 8
		default:
			h.upper, h.room = int(next), len(b)+end
			h.parseUpper(b, tunnels)
			return
		}
		if walked == 8 || length == 0 || len(b) < length {
			return
		}

		fragment := next == 44
		word := be.Uint16(b[2:])
		next, b = b[0], b[length:]
		if fragment && word&1 != 0 {
			h.ip6.more = true
		}
		if fragment && word>>3 > 0 {
			h.upper, h.later = int(next), true
			return
		}
	}
}

// parseUpper parses the header above IP. A later fragment has none.
func (h *headers) parseUpper(b []byte, tunnels bool) {
	if h.later {
		return
	}
	switch {
	case h.upper == 6 || h.upper == 17:
		if len(b) < 4 {
			return
		}
		h.ports = &portsHeader{src: be.Uint16(b), dst: be.Uint16(b[2:])}
		first := h.ip4 != nil && h.ip4.more || h.ip6 != nil && h.ip6.more
		if h.upper == 6 && len(b) >= 14 && !(first && h.room < 14) {
			flags := be.Uint16(b[12:]) & 0xfff
			h.flags = &flags
		}
		if h.upper == 17 && tunnels && len(b) >= 8 {
			h.parseUDPTunnel(b[8:])
		}
	case h.upper == 1 && h.ip4 != nil, h.upper == 58 && h.ip6 != nil:
		if len(b) >= 2 {
			h.icmp = &icmpHeader{typ: b[0], code: b[1]}
		}
	case h.upper == 132:
		if len(b) >= 8 {
			tag := be.Uint32(b[4:])
			h.ports = &portsHeader{src: be.Uint16(b), dst: be.Uint16(b[2:])}
			h.vtag = &tag
		}
	case h.upper == 50:
		if len(b) >= 4 {
			spi := be.Uint32(b)
			h.spi = &spi
		}
	case h.upper == 51: // behind IPv6 it is an extension header
		if len(b) >= 8 {
			spi := be.Uint32(b[4:])
			h.spi = &spi
		}
	case h.upper == 47 && tunnels:
		h.parseGRE(b)
	case h.upper == 4 && tunnels:
		h.ipip = &tunnelHeader{inner: parseType(0x0800, b)}
	case h.upper == 41 && tunnels:
		h.ipip = &tunnelHeader{inner: parseType(0x86dd, b)}
	}
}

// parseUDPTunnel parses what is behind UDP, by its destination port.
func (h *headers) parseUDPTunnel(b []byte) {
	switch h.ports.dst {
	case 4789:
		h.parseVXLAN(b)
	case 6081:
		h.parseGeneve(b)
	case 2152:
		h.parseGTPU(b)
	case 6635:
		h.parseMPLSUDP(b)
	}
}

// parseType parses the packet inside a tunnel that says its EtherType.
func parseType(typ uint16, b []byte) *headers {
	if typ == 0x6558 {
		return parseFrame(b, false)
	}
	h := &headers{upper: -1}
	h.parseNetwork(typ, b, false)
	return h
}

// parseGeneve parses a header of version 0, and the packet behind its options.
func (h *headers) parseGeneve(b []byte) {
	if len(b) < 8 || b[0]>>6 != 0 {
		return
	}
	h.geneve = &tunnelHeader{key: be.Uint32(b[4:]) >> 8, inner: &headers{upper: -1, unreached: true}}
	if options := 4 * int(b[0]&0x3f); len(b) >= 8+options {
		h.geneve.inner = parseType(be.Uint16(b[2:]), b[8+options:])
	}
}

// parseGTPU parses the header of a G-PDU, version 1, and the IP packet behind at most four extension headers.
func (h *headers) parseGTPU(b []byte) {
	if len(b) < 8 || b[0]>>5 != 1 || b[0]&0x10 == 0 || b[1] != 255 {
		return
	}
	flags := b[0]
	h.gtpu = &tunnelHeader{key: be.Uint32(b[4:]), inner: &headers{upper: -1, unreached: true}}
	b = b[8:]

	next := byte(0)
	if flags&7 != 0 { // sequence number, N-PDU number, type of the first extension header: all are there if one is said to be
		if len(b) < 4 {
			return
		}
		if flags&4 != 0 {
			next = b[3]
		}
		b = b[4:]
	}
	for walked := 0; next != 0; walked++ {
		if walked == 4 || len(b) == 0 || b[0] == 0 || len(b) < 4*int(b[0]) {
			return
		}
		length := 4 * int(b[0])
		next, b = b[length-1], b[length:]
	}
	h.gtpu.inner = parseIP(b, false)
}

// parseMPLSUDP parses the first entry of a label stack, and the IP packet behind at most eight entries.
func (h *headers) parseMPLSUDP(b []byte) {
	if len(b) < 4 {
		return
	}
	h.mplsudp = &tunnelHeader{entry: parseEntry(b), inner: &headers{upper: -1, unreached: true}}
	for range 8 {
		if len(b) < 4 {
			return
		}
		bottom := b[2]&1 != 0
		b = b[4:]
		if bottom {
			h.mplsudp.inner = parseIP(b, false)
			return
		}
	}
}

// parseVXLAN parses a header with any flags, and the frame inside.
func (h *headers) parseVXLAN(b []byte) {
	if len(b) < 8 {
		return
	}
	h.vxlan = &tunnelHeader{hasKey: true, key: be.Uint32(b[4:]) >> 8, inner: parseFrame(b[8:], false)}
}

// parseGRE parses a header of GRE version 0 without routing, and the packet inside. Others are opaque.
func (h *headers) parseGRE(b []byte) {
	if len(b) < 4 {
		return
	}
	flags, typ := be.Uint16(b), be.Uint16(b[2:])
	if flags&0x0007 != 0 || flags&0x4000 != 0 {
		return
	}

	b = b[4:]
	t := new(tunnelHeader)
	for _, word := range []uint16{0x8000, 0x2000, 0x1000} { // checksum, key, sequence
		if flags&word == 0 {
			continue
		}
		if len(b) < 4 {
			return
		}
		if word == 0x2000 {
			t.hasKey, t.key = true, be.Uint32(b)
		}
		b = b[4:]
	}

	t.inner = parseType(typ, b)
	h.gre = t
}
