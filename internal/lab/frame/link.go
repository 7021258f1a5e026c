package frame

import (
	"encoding/binary"
	"net/netip"
)

// Eth is an Ethernet header. Type 0 follows from the next layer.
type Eth struct {
	Dst, Src [6]byte
	Type     uint16
}

func (e Eth) appendTo(b []byte, s stack, at int, _ []byte) []byte {
	b = append(append(b, e.Dst[:]...), e.Src[:]...)
	return binary.BigEndian.AppendUint16(b, or(e.Type, s.etherType(at+1)))
}

// VLAN is a tag: 802.1Q, or 802.1ad with TPID TypeQinQ. TPID 0 is TypeVLAN;
// Type 0 follows from the next layer.
type VLAN struct {
	ID   uint16
	PCP  uint8
	DEI  bool
	TPID uint16
	Type uint16
}

func (v VLAN) tpid() uint16 { return or(v.TPID, TypeVLAN) }

func (v VLAN) appendTo(b []byte, s stack, at int, _ []byte) []byte {
	tci := uint16(v.PCP)<<13 | v.ID&0xfff
	if v.DEI {
		tci |= 1 << 12
	}
	b = binary.BigEndian.AppendUint16(b, tci)
	return binary.BigEndian.AppendUint16(b, or(v.Type, s.etherType(at+1)))
}

// ARP is a packet of ARP for IPv4 over Ethernet (RFC 826).
type ARP struct {
	Op                   uint16
	SenderMAC, TargetMAC [6]byte
	Sender, Target       netip.Addr
}

func (a ARP) appendTo(b []byte, _ stack, _ int, _ []byte) []byte {
	sender, target := a.Sender.As4(), a.Target.As4()
	b = append(b, 0, 1, 8, 0, 6, 4)
	b = binary.BigEndian.AppendUint16(b, a.Op)
	b = append(append(b, a.SenderMAC[:]...), sender[:]...)
	return append(append(b, a.TargetMAC[:]...), target[:]...)
}

// MPLS is one label stack entry (RFC 3032), the bottom of its stack unless MPLS follows. TTL 0 means 64.
type MPLS struct {
	Label uint32
	TC    uint8
	TTL   uint8
}

func (m MPLS) appendTo(b []byte, s stack, at int, _ []byte) []byte {
	entry := m.Label<<12 | uint32(m.TC&7)<<9 | uint32(or(m.TTL, 64))
	if at+1 == len(s) || s.etherType(at+1) != TypeMPLS {
		entry |= 1 << 8
	}
	return binary.BigEndian.AppendUint32(b, entry)
}

// VXLAN is a VXLAN header with a valid VNI (RFC 7348). An Eth layer follows.
type VXLAN struct {
	VNI   uint32
	Flags uint8 // 0 means 0x08: the VNI is valid
}

func (v VXLAN) appendTo(b []byte, _ stack, _ int, _ []byte) []byte {
	b = append(b, or(v.Flags, 0x08), 0, 0, 0)
	return binary.BigEndian.AppendUint32(b, v.VNI<<8)
}

// Geneve is a Geneve header of version 0 (RFC 8926). IP or an Eth layer follows it.
type Geneve struct {
	VNI      uint32
	Options  []byte // whole words
	Protocol uint16 // 0 follows from the next layer
}

func (g Geneve) appendTo(b []byte, s stack, at int, _ []byte) []byte {
	b = append(b, uint8(len(g.Options)/4), 0)
	b = binary.BigEndian.AppendUint16(b, or(g.Protocol, s.etherType(at+1)))
	b = binary.BigEndian.AppendUint32(b, g.VNI<<8)
	return append(b, g.Options...)
}

// GTPU is the header of a G-PDU (3GPP TS 29.281). IP follows it. With extensions, each of which is the content of one extension
// header, the optional fields are there.
type GTPU struct {
	TEID       uint32
	Type       uint8    // 0 means 255, a G-PDU
	Sequence   *uint16  // there when asked for
	Extensions [][]byte // of 4n+2 bytes
}

func (g GTPU) appendTo(b []byte, _ stack, _ int, rest []byte) []byte {
	const session = 0x85 // the type of the extension headers: a PDU session container
	flags := byte(0x30)
	var more []byte
	if g.Sequence != nil || len(g.Extensions) > 0 {
		var sequence uint16
		if g.Sequence != nil {
			flags |= 2
			sequence = *g.Sequence
		}
		more = binary.BigEndian.AppendUint16(more, sequence)
		more = append(more, 0)
		for _, e := range g.Extensions {
			flags |= 4
			more = append(more, session, byte((len(e)+2)/4))
			more = append(more, e...)
		}
		more = append(more, 0)
	}
	b = append(b, flags, or(g.Type, 255))
	b = binary.BigEndian.AppendUint16(b, uint16(len(more)+len(rest)))
	b = binary.BigEndian.AppendUint32(b, g.TEID)
	return append(b, more...)
}

// GRE is a GRE header (RFC 2784, RFC 2890). IP or an Eth layer follows it. The
// optional words are there when asked for.
type GRE struct {
	Checksum bool
	Key      *uint32
	Sequence *uint32
	Protocol uint16 // 0 follows from the next layer
}

func (g GRE) appendTo(b []byte, s stack, at int, rest []byte) []byte {
	start := len(b)
	var flags uint16
	if g.Checksum {
		flags |= 0x8000
	}
	if g.Key != nil {
		flags |= 0x2000
	}
	if g.Sequence != nil {
		flags |= 0x1000
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint16(b, or(g.Protocol, s.etherType(at+1)))
	if g.Checksum {
		b = append(b, 0, 0, 0, 0)
	}
	if g.Key != nil {
		b = binary.BigEndian.AppendUint32(b, *g.Key)
	}
	if g.Sequence != nil {
		b = binary.BigEndian.AppendUint32(b, *g.Sequence)
	}
	if g.Checksum {
		binary.BigEndian.PutUint16(b[start+4:], checksum(b[start:], rest))
	}
	return b
}

// or is a, or where that is zero b.
func or[T comparable](a, b T) T {
	var zero T
	if a == zero {
		return b
	}
	return a
}
