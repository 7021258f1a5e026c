package frame

import (
	"encoding/binary"
	"hash/crc32"
)

// UDP is a UDP header with its checksum.
type UDP struct {
	Src, Dst uint16
	Length   uint16 // 0 means the true length
	NoSum    bool   // leaves the checksum 0: none was computed (IPv4, VXLAN)
}

func (u UDP) appendTo(b []byte, s stack, at int, rest []byte) []byte {
	h := make([]byte, 8)
	binary.BigEndian.PutUint16(h[0:], u.Src)
	binary.BigEndian.PutUint16(h[2:], u.Dst)
	binary.BigEndian.PutUint16(h[4:], or(u.Length, uint16(8+len(rest))))
	if !u.NoSum {
		sum := checksum(s.pseudoHeader(at, protoUDP, 8+len(rest)), h, rest)
		binary.BigEndian.PutUint16(h[6:], or(sum, 0xffff)) // 0 would mean none
	}
	return append(b, h...)
}

// ESP is an ESP header (RFC 4303). The layers behind it stand for the encrypted packet.
type ESP struct{ SPI, Seq uint32 }

func (e ESP) appendTo(b []byte, _ stack, _ int, _ []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, e.SPI), e.Seq)
}

// AuthHeader is an authentication header (RFC 4302) behind IPv4, with a check value of 12 zeros.
type AuthHeader struct{ SPI, Seq uint32 }

func (a AuthHeader) appendTo(b []byte, s stack, at int, _ []byte) []byte {
	h := make([]byte, 24)
	h[0], h[1] = s.protocol(at+1), byte(len(h)/4-2)
	binary.BigEndian.PutUint32(h[4:], a.SPI)
	binary.BigEndian.PutUint32(h[8:], a.Seq)
	return append(b, h...)
}

// SCTP is the common header of SCTP (RFC 9260) with its checksum. The layers behind it stand for chunks.
type SCTP struct {
	Src, Dst uint16
	Tag      uint32
}

func (p SCTP) appendTo(b []byte, _ stack, _ int, rest []byte) []byte {
	h := make([]byte, 12)
	binary.BigEndian.PutUint16(h[0:], p.Src)
	binary.BigEndian.PutUint16(h[2:], p.Dst)
	binary.BigEndian.PutUint32(h[4:], p.Tag)
	table := crc32.MakeTable(crc32.Castagnoli)
	binary.LittleEndian.PutUint32(h[8:], crc32.Update(crc32.Checksum(h, table), table, rest))
	return append(b, h...)
}

// TCP flags.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// TCP is a TCP header with its checksum. Flags 0 means ACK; Window 0 means 65535.
type TCP struct {
	Src, Dst uint16
	Seq, Ack uint32
	Flags    uint16 // 12 bits
	Window   uint16
	Options  []byte // padded to whole words with End of Options
}

func (t TCP) appendTo(b []byte, s stack, at int, rest []byte) []byte {
	size := 20 + (len(t.Options)+3)/4*4
	h := make([]byte, size)
	binary.BigEndian.PutUint16(h[0:], t.Src)
	binary.BigEndian.PutUint16(h[2:], t.Dst)
	binary.BigEndian.PutUint32(h[4:], t.Seq)
	binary.BigEndian.PutUint32(h[8:], t.Ack)
	binary.BigEndian.PutUint16(h[12:], uint16(size/4)<<12|or(t.Flags, ACK))
	binary.BigEndian.PutUint16(h[14:], or(t.Window, 0xffff))
	copy(h[20:], t.Options)
	sum := checksum(s.pseudoHeader(at, protoTCP, size+len(rest)), h, rest)
	binary.BigEndian.PutUint16(h[16:], sum)
	return append(b, h...)
}

// ICMP message types.
const (
	EchoReply     = 0
	EchoRequest   = 8
	EchoRequestV6 = 128
	EchoReplyV6   = 129
)

// ICMP is an ICMP header: for an echo, Rest is the identifier and the sequence number.
type ICMP struct {
	Type, Code uint8
	Rest       uint32
}

func (i ICMP) appendTo(b []byte, _ stack, _ int, rest []byte) []byte {
	h := icmp(i.Type, i.Code, i.Rest)
	binary.BigEndian.PutUint16(h[2:], checksum(h, rest))
	return append(b, h...)
}

// ICMPv6 is an ICMPv6 header, as ICMP.
type ICMPv6 struct {
	Type, Code uint8
	Rest       uint32
}

func (i ICMPv6) appendTo(b []byte, s stack, at int, rest []byte) []byte {
	h := icmp(i.Type, i.Code, i.Rest)
	sum := checksum(s.pseudoHeader(at, protoICMPv6, 8+len(rest)), h, rest)
	binary.BigEndian.PutUint16(h[2:], sum)
	return append(b, h...)
}

func icmp(typ, code uint8, rest uint32) []byte {
	h := make([]byte, 8)
	h[0], h[1] = typ, code
	binary.BigEndian.PutUint32(h[4:], rest)
	return h
}
