package frame

import "net/netip"

// FragmentsIPv4 splits one datagram, of header h and the layers behind it,
// into fragments that carry at most size bytes (a multiple of 8) behind the IP
// header, each in the layers link.
func FragmentsIPv4(link []Layer, h IPv4, size int, behind ...Layer) [][]byte {
	whole := Build(append([]Layer{h}, behind...)...)
	h.Proto = whole[9]
	data := whole[20+(len(h.Options)+3)/4*4:]
	var frames [][]byte
	for off := 0; off < len(data); off += size {
		end := min(off+size, len(data))
		h.Offset, h.MF = off, end < len(data)
		frames = append(frames, Build(append(link[:len(link):len(link)], h, Bytes(data[off:end]))...))
	}
	return frames
}

// FragmentsIPv6 is FragmentsIPv4 for IPv6: each fragment has a fragment header.
func FragmentsIPv6(link []Layer, h IPv6, id uint32, size int, behind ...Layer) [][]byte {
	whole := Build(append([]Layer{h}, behind...)...)
	proto := whole[6]
	data := whole[40:]
	var frames [][]byte
	for off := 0; off < len(data); off += size {
		end := min(off+size, len(data))
		x := FragmentExt(off, end < len(data), id)
		x.Next = proto
		frames = append(frames, Build(append(link[:len(link):len(link)], h, x, Bytes(data[off:end]))...))
	}
	return frames
}

// Addr parses an IP address of either family. It panics when s is not an address.
func Addr(s string) netip.Addr { return netip.MustParseAddr(s) }
