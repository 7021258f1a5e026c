package frame

import "fmt"

// Layer is one header, or the payload. The set is closed: the types of this
// package.
type Layer interface {
	// appendTo appends the layer to b. at is the layer's place in s, and rest
	// are the encoded bytes of everything behind it.
	appendTo(b []byte, s stack, at int, rest []byte) []byte
}

// stack is the list of layers of one frame, outermost first.
type stack []Layer

// Build encodes the layers, outermost first. It panics on layers that cannot
// stand where they are (UDP without IP): that is a mistake in the program.
func Build(layers ...Layer) []byte {
	s := stack(layers)
	var rest []byte
	for at := len(s) - 1; at >= 0; at-- {
		b := s[at].appendTo(nil, s, at, rest)
		rest = append(b, rest...)
	}
	return rest
}

// Sized builds the layers and as much payload as makes the frame size bytes
// long. It panics when the headers alone are longer.
func Sized(size int, layers ...Layer) []byte {
	n := size - len(Build(layers...))
	if n < 0 {
		panic(fmt.Sprintf("frame: headers of %d bytes do not fit in %d", size-n, size))
	}
	return Build(append(layers[:len(layers):len(layers)], Payload(n))...)
}

// Payload is that many bytes, counting up from 0.
type Payload int

func (p Payload) appendTo(b []byte, _ stack, _ int, _ []byte) []byte {
	for i := range int(p) {
		b = append(b, byte(i))
	}
	return b
}

// Bytes are given bytes: a payload, or a header that the package does not know.
type Bytes []byte

func (p Bytes) appendTo(b []byte, _ stack, _ int, _ []byte) []byte { return append(b, p...) }

// Protocol numbers and EtherTypes.
const (
	TypeIPv4 = 0x0800
	TypeARP  = 0x0806
	TypeIPv6 = 0x86dd
	TypeVLAN = 0x8100
	TypeQinQ = 0x88a8
	TypeMPLS = 0x8847
	TypeTEB  = 0x6558 // an Ethernet frame inside GRE

	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoGRE    = 47
	protoESP    = 50
	protoSCTP   = 132
	protoICMPv6 = 58
	protoNone   = 59 // IPv6: nothing follows
)

// etherType returns the EtherType by which a header announces the layer at place at.
func (s stack) etherType(at int) uint16 {
	if at >= len(s) {
		return 0xffff // reserved: nothing is claimed of an empty payload
	}
	switch l := s[at].(type) {
	case VLAN:
		return l.tpid()
	case IPv4:
		return TypeIPv4
	case IPv6:
		return TypeIPv6
	case ARP:
		return TypeARP
	case MPLS:
		return TypeMPLS
	case Eth:
		return TypeTEB
	}
	return 0xffff
}

// protocol returns the protocol by which an IP header announces the layer at place at.
func (s stack) protocol(at int) uint8 {
	if at >= len(s) {
		return protoNone
	}
	switch l := s[at].(type) {
	case TCP:
		return protoTCP
	case UDP:
		return protoUDP
	case ICMP:
		return protoICMP
	case ICMPv6:
		return protoICMPv6
	case GRE:
		return protoGRE
	case ESP:
		return protoESP
	case AuthHeader:
		return AH
	case SCTP:
		return protoSCTP
	case Ext:
		return l.Type
	case IPv4:
		return 4
	case IPv6:
		return 41
	}
	return protoNone
}
