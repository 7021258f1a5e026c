package flow

// Flow is a set of packets to count (Match), on one side of an interface, and the action on them.
type Flow struct {
	// Name identifies the flow and its counter: 1 to 63 bytes of
	// [A-Za-z0-9._:/-], starting with a letter or digit. Unique in an instance.
	Name string

	// Match selects packets. The zero Match selects every packet.
	Match Match

	// Priority orders overlapping flows: the lowest number wins, as in
	// ibv_flow_attr. Of equal priorities the flow added first wins.
	Priority uint16

	// Direction is the side of the interface on which packets are seen.
	Direction Direction

	// Action is the action on a matched packet.
	Action Action

	// Interface restricts the flow to one interface; empty means every interface of the instance.
	Interface string

	// Latency asks for a record of its own in the mirror, published at the
	// lowest latency, in place of a column in a block of 64.
	Latency bool

	// Backend that counts the flow. Empty means the backend of the configuration. If the named backend
	// cannot count the flow, adding it fails: only [Auto] tries another.
	Backend Backend

	// Labels travel to the mirror with the name. Optional.
	Labels map[string]string
}

// Direction is the side of an interface: Ingress (received) or Egress (sent).
type Direction uint8

const (
	Ingress Direction = iota // received
	Egress                   // sent
)

// Action is the action on a matched packet.
type Action uint8

const (
	// Count counts the packet and lets it pass.
	Count Action = iota
	// Drop counts the packet and drops it.
	Drop
)

// Match is a masked match on the headers of a packet. A nil layer is not
// looked at; a layer present with no field set asks that the header be there.
// An Inner match describes the headers inside a tunnel and holds no tunnel itself.
type Match struct {
	Eth  *Eth
	VLAN []VLAN // outermost tag first, at most two; none: any tagging
	// Untagged asks for an Ethernet header without a VLAN tag.
	Untagged bool
	MPLS     *MPLS // nothing behind its first label stack entry is looked at
	IPv4     *IPv4
	IPv6     *IPv6
	TCP      *TCP
	UDP      *Ports
	ICMP     *ICMP // ICMP over IPv4, ICMPv6 over IPv6; either where the match names neither
	ESP      *ESP
	VXLAN    *VXLAN
	GRE      *GRE
	// Incomplete asks that the headers be cut off, or too many to be walked to their end, so that
	// a match above the place where the walk ended does not see the packet.
	Incomplete bool
}

// Masked is a value under a mask: a field f matches when f&Mask == Value.
// The zero Masked matches everything. Value has no bit outside Mask.
type Masked[T ~uint8 | ~uint16 | ~uint32] struct{ Value, Mask T }

// MAC is an Ethernet address under a mask, in wire order.
type MAC struct{ Addr, Mask [6]byte }

// Addr4 is an IPv4 address under a mask, in wire order.
type Addr4 struct{ Addr, Mask [4]byte }

// Addr6 is an IPv6 address under a mask, in wire order.
type Addr6 struct{ Addr, Mask [16]byte }

// Eth matches the Ethernet header. Type is the EtherType behind the VLAN tags
// (at most two are looked behind), as ibv_flow_eth_filter has it.
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

// IPv4 matches the IPv4 header (RFC 791), options allowed.
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
	FragmentAny   Fragment = iota // not looked at
	FragmentNo                    // a whole datagram
	FragmentYes                   // any fragment
	FragmentFirst                 // the fragment at offset 0, more follow
	FragmentLater                 // a fragment at an offset above 0
)

// IPv6 matches the fixed IPv6 header (RFC 8200). NextHeader is the field of
// the fixed header; the protocol behind extension headers is matched by TCP,
// UDP, ICMP and GRE.
type IPv6 struct {
	Src, Dst     Addr6
	FlowLabel    Masked[uint32] // 20 bits
	NextHeader   Masked[uint8]
	TrafficClass Masked[uint8]
	HopLimit     Masked[uint8]
	Fragment     Fragment // as the fragment header says, behind other extension headers too
}

// Ports matches a TCP or UDP header. Without a port it matches every fragment
// of the protocol; with one, never a fragment at an offset above 0.
type Ports struct{ Src, Dst Port }

// TCP matches a TCP header. Without a port and a flag it matches every fragment; with one, never a fragment at an
// offset above 0.
type TCP struct {
	Ports
	Flags Masked[TCPFlags]
}

// TCPFlags are the 12 bits behind the data offset of a TCP header (RFC 9293). The highest three are reserved, and have
// no names.
type TCPFlags uint16

const (
	FIN TCPFlags = 1 << iota // no more data from the sender
	SYN                      // synchronise sequence numbers
	RST                      // reset the connection
	PSH                      // push
	ACK                      // the acknowledgment number is valid
	URG                      // the urgent pointer is valid
	ECE                      // ECN echo (RFC 3168)
	CWR                      // congestion window reduced (RFC 3168)
	AE                       // accurate ECN (RFC 9768), once NS
)

// Port matches a port number: anything (the zero Port), a masked value, or,
// when Last is not 0, the inclusive range Value..Last (Mask is 0 then).
type Port struct{ Value, Mask, Last uint16 }

// ICMP matches the type and code of ICMP or ICMPv6. Without either it matches
// every fragment.
type ICMP struct{ Type, Code Masked[uint8] }

// ESP matches an ESP header (RFC 4303). Without an SPI it matches every fragment.
type ESP struct{ SPI Masked[uint32] }

// MPLS matches the first label stack entry (RFC 3032) behind EtherType 0x8847 or 0x8848.
type MPLS struct {
	Label  Masked[uint32] // 20 bits
	TC     Masked[uint8]  // 3 bits
	Bottom Masked[uint8]  // 1 bit: the bottom of the stack
	TTL    Masked[uint8]
}

// VXLAN matches UDP to VXLAN's port (RFC 7348: 4789), and with a VNI or Inner the
// header, whatever its flags, and the frame inside it.
type VXLAN struct {
	VNI   Masked[uint32] // 24 bits
	Inner *Match
}

// GRE matches a GRE header (RFC 2784, RFC 2890; version 0) and the packet
// inside it. A key that is matched must be present.
type GRE struct {
	Key   Masked[uint32]
	Inner *Match
}
