package flow

// Flow describes packets to count, and whether to drop them. On each interface a packet counts for one flow only: of all
// matching flows, the one with the lowest Priority.
type Flow struct {
	// Name of the flow and of its counter, unique in an instance: 1 to 63 bytes of [A-Za-z0-9._:/-], starting with a
	// letter or a digit.
	Name string

	// Match selects packets. The zero Match selects every packet.
	Match Match

	// Priority decides between overlapping flows. The lowest number wins, as in ibv_flow_attr. Between equal priorities,
	// the flow added first wins.
	Priority uint16

	// Direction selects received or sent packets.
	Direction Direction

	// Action on a matching packet.
	Action Action

	// Interface limits the flow to one interface. Empty means every interface of the instance.
	Interface string

	// Latency gives the counter a record of its own in the mirror, which readers see sooner than the usual blocks of 64
	// counters.
	Latency bool

	// Backend to count the flow. Empty means the backend of the configuration. Only [Auto] tries several: adding a flow
	// fails if the backend it names cannot count it.
	Backend Backend

	// Labels are published in the mirror together with the name. Optional.
	Labels map[string]string
}

// Direction selects the packets received or sent by an interface.
type Direction uint8

const (
	Ingress Direction = iota // received
	Egress                   // sent
)

// Action is what happens to a matching packet.
type Action uint8

const (
	// Count counts the packet and lets it pass.
	Count Action = iota
	// Drop counts the packet and drops it.
	Drop
)

// Match selects packets by their headers. A nil layer matches any packet. A layer without fields matches every packet with
// that header. The Inner match of a tunnel cannot contain another tunnel.
type Match struct {
	Eth  *Eth
	VLAN []VLAN // the outermost tag first, at most two; empty matches tagged and untagged packets
	// Untagged matches only Ethernet headers without a VLAN tag.
	Untagged bool
	MPLS     *MPLS // cannot be combined with headers behind the label stack
	ARP      *ARP
	IPv4     *IPv4
	IPv6     *IPv6
	TCP      *TCP
	UDP      *Ports
	SCTP     *SCTP
	ICMP     *ICMP // ICMP over IPv4 and ICMPv6 over IPv6
	ESP      *ESP
	AH       *AH // needs IPv4
	VXLAN    *VXLAN
	GRE      *GRE
	IPIP     *IPIP
	Geneve   *Geneve
	GTPU     *GTPU
	MPLSUDP  *MPLSUDP
	// Incomplete matches packets whose headers end early or are too many to walk. No match on a header beyond that point
	// sees such a packet, so a firewall should drop them ([Unguarded]).
	Incomplete bool
	// Choices ask for one of several values of a field, or exclude some. Each names a clause that the match has.
	Choices []Choice
}

// Masked matches a header field f if f&Mask == Value. The zero Masked matches everything. Value must not have bits outside
// Mask.
type Masked[T ~uint8 | ~uint16 | ~uint32] struct{ Value, Mask T }

// MAC matches an Ethernet address, in wire order. Addr must not have bits outside Mask.
type MAC struct{ Addr, Mask [6]byte }

// Addr4 matches an IPv4 address, in wire order. Addr must not have bits outside Mask.
type Addr4 struct{ Addr, Mask [4]byte }

// Addr6 matches an IPv6 address, in wire order. Addr must not have bits outside Mask.
type Addr6 struct{ Addr, Mask [16]byte }

// Eth matches the Ethernet header. Type is the EtherType after up to two VLAN tags, as in ibv_flow_eth_filter.
type Eth struct {
	Src, Dst MAC
	Type     Masked[uint16]
}

// VLAN matches one 802.1Q or 802.1ad tag.
type VLAN struct {
	ID  Masked[uint16] // 12 bits
	PCP Masked[uint8]  // 3 bits
	DEI Masked[uint8]  // 1 bit
}

// IPv4 matches the IPv4 header (RFC 791), with or without options.
type IPv4 struct {
	Src, Dst Addr4
	Proto    Masked[uint8]
	TOS      Masked[uint8]
	TTL      Masked[uint8]
	Fragment Fragment
}

// Fragment selects packets by their place in a fragmented datagram.
type Fragment uint8

const (
	FragmentAny   Fragment = iota // fragments and whole datagrams
	FragmentNo                    // whole datagrams
	FragmentYes                   // all fragments
	FragmentFirst                 // the fragment at offset 0, with more to follow
	FragmentLater                 // all fragments but the first
)

// IPv6 matches the fixed IPv6 header (RFC 8200). NextHeader is the field of that header, which may be the number of an
// extension header. To match the protocol after the extension headers, set TCP, UDP, ICMP, ESP or a tunnel.
type IPv6 struct {
	Src, Dst     Addr6
	FlowLabel    Masked[uint32] // 20 bits
	NextHeader   Masked[uint8]
	TrafficClass Masked[uint8]
	HopLimit     Masked[uint8]
	Fragment     Fragment // by the fragment header, wherever it is among the extension headers
}

// Ports matches a UDP header, or the ports of a TCP header. Only the first fragment of a datagram has ports: with a port
// set, later fragments do not match. Without, all fragments of the protocol do.
type Ports struct{ Src, Dst Port }

// TCP matches a TCP header. With a port or a flag set, later fragments do not match, as for [Ports].
type TCP struct {
	Ports
	Flags Masked[TCPFlags]
}

// TCPFlags are the 12 bits after the data offset of a TCP header (RFC 9293). The highest three are reserved and have no
// names.
type TCPFlags uint16

const (
	FIN TCPFlags = 1 << iota // no more data from the sender
	SYN                      // synchronize sequence numbers
	RST                      // reset the connection
	PSH                      // push
	ACK                      // the acknowledgment number is valid
	URG                      // the urgent pointer is valid
	ECE                      // ECN echo (RFC 3168)
	CWR                      // congestion window reduced (RFC 3168)
	AE                       // accurate ECN (RFC 9768), once NS
)

// Port matches a port number. The zero Port matches everything. If Last is not 0, Port matches the range from Value to Last,
// both inclusive, and Mask must be 0. Otherwise it works like [Masked].
type Port struct{ Value, Mask, Last uint16 }

// ICMP matches the type and code of ICMP or ICMPv6. With one of them set, later fragments do not match.
type ICMP struct{ Type, Code Masked[uint8] }

// ESP matches an ESP header (RFC 4303). With an SPI set, later fragments do not match.
type ESP struct{ SPI Masked[uint32] }

// AH matches an authentication header (RFC 4302) as the protocol of IPv4. With an SPI set, later fragments do not match. Behind
// IPv6 it is an extension header, and no field looks into it.
type AH struct{ SPI Masked[uint32] }

// SCTP matches the common header of SCTP (RFC 9260). With a field set, later fragments do not match, as for [Ports].
type SCTP struct {
	Ports
	Tag Masked[uint32] // the verification tag
}

// ARP matches packets of ARP (RFC 826). Without a field it matches every frame of EtherType 0x0806. With one it matches ARP for
// IPv4 and MAC addresses.
type ARP struct {
	Op             Masked[uint16]
	Sender, Target Addr4 // the IPv4 addresses
}

// MPLS matches the first label stack entry (RFC 3032) of EtherType 0x8847 or 0x8848.
type MPLS struct {
	Label  Masked[uint32] // 20 bits
	TC     Masked[uint8]  // 3 bits
	Bottom Masked[uint8]  // 1 bit: this entry is the bottom of the stack
	TTL    Masked[uint8]
}

// VXLAN matches UDP to port 4789 (RFC 7348). VNI and Inner also match the VXLAN header, whatever its flags, and the frame
// inside.
type VXLAN struct {
	VNI   Masked[uint32] // 24 bits
	Inner *Match
}

// GRE matches a GRE header of version 0 (RFC 2784, RFC 2890) and the packet inside. A match on Key needs a packet with a key.
type GRE struct {
	Key   Masked[uint32]
	Inner *Match
}

// IPIP matches IP directly inside IP: the protocol above the outer header is 4 (IPv4 inside) or 41 (IPv6 inside). Inner matches the
// packet inside; a later fragment does not have it.
type IPIP struct{ Inner *Match }

// Geneve matches UDP to port 6081 (RFC 8926). VNI and Inner also match a Geneve header of version 0, and the packet behind its options.
type Geneve struct {
	VNI   Masked[uint32] // 24 bits
	Inner *Match
}

// GTPU matches UDP to port 2152 (3GPP TS 29.281). TEID and Inner also match the header of a G-PDU, a packet of a user, and the IP
// packet behind the extension headers.
type GTPU struct {
	TEID  Masked[uint32]
	Inner *Match
}

// MPLSUDP matches UDP to port 6635 (RFC 7510). The fields match the first label stack entry, and Inner the IP packet behind the last.
type MPLSUDP struct {
	MPLS
	Inner *Match
}
