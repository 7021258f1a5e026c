package xdprows

import "encoding/binary"

// arp is a request for an address.
func arp() []byte {
	b := make([]byte, 64)
	copy(b, []byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2})
	return b
}

// ipv6 is a UDP packet.
func ipv6() []byte {
	b := make([]byte, 64)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 10, 17, 64})
	copy(b[22:], []byte{0x20, 1, 0xd, 0xb8})
	copy(b[38:], []byte{0x20, 1, 0xd, 0xb8})
	b[37], b[53] = 1, 2
	binary.BigEndian.PutUint16(b[54:], 1000)
	binary.BigEndian.PutUint16(b[56:], 53)
	binary.BigEndian.PutUint16(b[58:], 10)
	return b
}

// ipv6Extended is the UDP packet of ipv6 behind n extension headers: of hop-by-hop options, and of destination options.
func ipv6Extended(n int) []byte {
	plain := ipv6()
	b := append([]byte{}, plain[:54]...)
	const hopByHop, destination, udp = 0, 60, 17
	next := &b[20]
	*next = hopByHop
	for i := range n {
		following := byte(destination)
		if i == n-1 {
			following = udp
		}
		b = append(b, following, 0, 1, 4, 0, 0, 0, 0) // the option PadN of six bytes
	}
	b = append(b, plain[54:64]...)
	binary.BigEndian.PutUint16(b[18:], uint16(len(b)-54))
	return b
}
