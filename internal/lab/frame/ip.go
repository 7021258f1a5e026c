package frame

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// IPv4 is an IPv4 header. TTL 0 means 64; Proto 0 follows from the next layer.
type IPv4 struct {
	Src, Dst netip.Addr
	TOS      uint8
	TTL      uint8
	Proto    uint8
	ID       uint16
	DF, MF   bool
	Offset   int    // of a fragment, in bytes, a multiple of 8
	Options  []byte // padded to whole words with End of Options
	Length   uint16 // 0 means the true total length
}

func (p IPv4) appendTo(b []byte, s stack, at int, rest []byte) []byte {
	options := (len(p.Options) + 3) / 4 * 4
	size := 20 + options
	frag := uint16(p.Offset / 8)
	if p.DF {
		frag |= 0x4000
	}
	if p.MF {
		frag |= 0x2000
	}
	h := make([]byte, size)
	h[0] = 0x40 | uint8(size/4)
	h[1] = p.TOS
	binary.BigEndian.PutUint16(h[2:], or(p.Length, uint16(size+len(rest))))
	binary.BigEndian.PutUint16(h[4:], p.ID)
	binary.BigEndian.PutUint16(h[6:], frag)
	h[8] = or(p.TTL, 64)
	h[9] = or(p.Proto, s.protocol(at+1))
	src, dst := p.Src.As4(), p.Dst.As4()
	copy(h[12:], src[:])
	copy(h[16:], dst[:])
	copy(h[20:], p.Options)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(b, h...)
}

// IPv6 is the fixed IPv6 header. HopLimit 0 means 64; NextHeader 0 follows
// from the next layer.
type IPv6 struct {
	Src, Dst     netip.Addr
	TrafficClass uint8
	FlowLabel    uint32
	HopLimit     uint8
	NextHeader   uint8
	Length       uint16 // 0 means the true payload length
}

func (p IPv6) appendTo(b []byte, s stack, at int, rest []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(p.TrafficClass)<<20|p.FlowLabel&0xfffff)
	b = binary.BigEndian.AppendUint16(b, or(p.Length, uint16(len(rest))))
	b = append(b, or(p.NextHeader, s.protocol(at+1)), or(p.HopLimit, 64))
	src, dst := p.Src.As16(), p.Dst.As16()
	return append(append(b, src[:]...), dst[:]...)
}

// The IPv6 extension headers that a packet walk goes through.
const (
	HopByHop    = 0
	Routing     = 43
	Fragment    = 44
	AH          = 51
	Destination = 60
	Mobility    = 135
	HIP         = 139
	Shim6       = 140
)

// Ext is an IPv6 extension header. Body follows the next-header and length
// bytes, padded to the header's unit; for Fragment use [FragmentExt].
type Ext struct {
	Type uint8
	Next uint8 // 0 follows from the next layer
	Body []byte
}

// FragmentExt is the extension header of a fragment: offset in bytes, a
// multiple of 8, and whether more fragments follow.
func FragmentExt(offset int, more bool, id uint32) Ext {
	body := make([]byte, 6)
	word := uint16(offset)
	if more {
		word |= 1
	}
	binary.BigEndian.PutUint16(body, word)
	binary.BigEndian.PutUint32(body[2:], id)
	return Ext{Type: Fragment, Body: body}
}

func (e Ext) appendTo(b []byte, s stack, at int, _ []byte) []byte {
	next := or(e.Next, s.protocol(at+1))
	if e.Type == Fragment {
		return append(append(b, next, 0), e.Body...)
	}
	words := max((2+len(e.Body)+7)/8, 1) // of 8 bytes
	length := words - 1
	if e.Type == AH { // counted in words of 4 bytes, less 2 (RFC 4302)
		words = max(words, 2)
		length = words*2 - 2
	}
	h := make([]byte, words*8)
	h[0], h[1] = next, uint8(length)
	n := copy(h[2:], e.Body)
	// The rest of an options header is one PadN, so that a real stack
	// takes it; the others are padded with zeros.
	if pad := len(h) - 2 - n; pad >= 2 && (e.Type == HopByHop || e.Type == Destination) {
		h[2+n], h[3+n] = 1, uint8(pad-2)
	}
	return append(b, h...)
}

// pseudoHeader of the IP layer in front of place at, for checksums of length
// bytes of protocol proto.
func (s stack) pseudoHeader(at int, proto uint8, length int) []byte {
	for i := at - 1; i >= 0; i-- {
		switch p := s[i].(type) {
		case IPv4:
			src, dst := p.Src.As4(), p.Dst.As4()
			b := append(append([]byte{}, src[:]...), dst[:]...)
			return append(b, 0, proto, byte(length>>8), byte(length))
		case IPv6:
			src, dst := p.Src.As16(), p.Dst.As16()
			b := append(append([]byte{}, src[:]...), dst[:]...)
			b = binary.BigEndian.AppendUint32(b, uint32(length))
			return append(b, 0, 0, 0, proto)
		case Ext:
			continue
		}
		break
	}
	panic(fmt.Sprintf("frame: layer %d (%T) has no IP header in front of it", at, s[at]))
}

// checksum is the Internet checksum (RFC 1071) of the parts, each but the last
// of even length.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, p := range parts {
		for len(p) >= 2 {
			sum += uint32(p[0])<<8 | uint32(p[1])
			p = p[2:]
		}
		if len(p) == 1 {
			sum += uint32(p[0]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
