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

// frame is the 64-byte UDP packet of flow f, as bench_spread makes it.
func frame(f uint16) []byte {
	b := make([]byte, 64)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0})
	b[14], b[22], b[23] = 0x45, 64, 17
	binary.BigEndian.PutUint16(b[16:], 50)
	b[26], b[29] = 10, 1
	copy(b[30:], []byte{192, 0, 2, 1})
	binary.BigEndian.PutUint16(b[36:], 53)
	binary.BigEndian.PutUint16(b[38:], 30)
	binary.NativeEndian.PutUint16(b[27:], f)
	binary.NativeEndian.PutUint16(b[34:], f^f>>3)
	return b
}

// missing returns a packet that the program written by hand does not count: it goes to another port.
func missing() []byte {
	b := frame(0)
	binary.BigEndian.PutUint16(b[36:], 54)
	return b
}
