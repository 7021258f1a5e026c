package xdp

import "unsafe"

// Flags are the headers of a packet. They are part of the key. A rule requires a header by setting its flag in Key and Mask. To
// require its absence, set the flag in Mask alone.
type Flags uint16

const (
	FlagEth        Flags = 1 << iota // an Ethernet header is in the frame
	FlagTag1                         // an outer VLAN tag: VLAN[0]
	FlagTag2                         // a second one: VLAN[1]
	FlagIPv4                         // an IPv4 header
	FlagIPv6                         // an IPv6 header
	FlagFrag                         // any fragment
	FlagLater                        // a fragment at an offset above 0
	FlagL4                           // L4 has what the protocol's header begins with
	FlagTunnel                       // the header of a tunnel other than GRE: Proto and the destination port in L4 tell which
	FlagGRE                          // a GRE header
	FlagGREKey                       // with a key: Tunnel
	FlagEgress                       // the packet is being sent (outer headers only)
	FlagIncomplete                   // an announced header is missing, or the parser did not reach it
	FlagTCPFlags                     // TCPFlags are the flags of a TCP header
	FlagMPLS                         // an MPLS label stack entry: Tunnel
)

// Headers is one level of parsed headers. Unless noted otherwise, fields are in wire order. A field is 0 if its header is absent,
// so check the flag of the header before relying on a 0.
//
// The layout mirrors struct ft_headers in bpf/key.h: nine 64-bit words, of which most rules need the first two. A test compares
// every offset with the object's BTF.
type Headers struct {
	_        [0]uint64
	L4       [4]byte  // ports, or ICMP type and code, 0, 0, or the SPI of ESP or AH, or the operation of ARP, 0, 0
	Proto    uint8    // IPv4 protocol; the protocol behind IPv6 extension headers
	TCPFlags uint8    // CWR, ECE, URG, ACK, PSH, RST, SYN, FIN from the highest bit on
	Flags    Flags    // host order
	Addr     [32]byte // IPv4: source at 0, destination at 4; IPv6: source at 0, destination at 16; ARP: sender at 0, target at 4
	TOS      uint8    // or traffic class
	TTL      uint8    // or hop limit
	Next     uint8    // protocol or next header as the fixed header has it
	TCPHigh  uint8    // the four bits before TCPFlags, under the same flag: three reserved, AE
	Label    [4]byte  // IPv6 flow label, the low 20 bits; above them the answers of sets (Membership)
	EthDst   [6]byte
	EthType  [2]byte // the one after the VLAN tags
	EthSrc   [6]byte
	Port     uint16     // number of the interface, host order (outer headers only)
	VLAN     [2][2]byte // TCI: PCP 3 bits, DEI 1, ID 12
	Tunnel   [4]byte    // VXLAN, Geneve: VNI in 3 bytes; GTP-U: TEID; GRE: key (in outer headers only); MPLS, also over UDP: the first label stack entry; SCTP: verification tag
}

// Key holds the parsed headers of a packet: the outer ones, and the inner ones of the packet inside a tunnel. A Key also serves as the mask
// of a Rule.
type Key struct{ Out, In Headers }

// Words is the number of 64-bit words of a Key.
const Words = int(unsafe.Sizeof(Key{}) / 8)

type words [Words]uint64

// Under returns k AND mask.
func (k Key) Under(mask Key) Key {
	w, m := k.words(), mask.words()
	for i := range w {
		w[i] &= m[i]
	}
	return k
}
