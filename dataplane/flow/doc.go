// Package flow is the vocabulary of flowtally: what a flow is and how it is
// written. It holds no state, touches no kernel and imports only the standard
// library, so that every other package may use it.
//
// # What a match means, exactly
//
// Bounds are those of the frame: a header that does not fit in it is not
// there, and the headers before it still match. The total length of IPv4 and
// the payload length of IPv6 are not consulted, nor is any checksum.
//
//   - Ethernet: 14 bytes in the frame. A frame of a device without it (tun, wireguard, ipip, what sit sends)
//     begins with IP: it has no Ethernet header and no tag, and its bytes are those of layer 3.
//   - VLAN: EtherTypes 0x8100 and 0x88a8 are tags when their 4 bytes are in the frame. At most two
//     are parsed; a third, or one that does not fit, stands as the EtherType and nothing behind it is
//     looked at. One vlan clause asks for at least one tag and looks at the outermost; two ask for two.
//   - IPv4: EtherType 0x0800, version 4, IHL at least 5, the header with its options in the frame.
//     A fragment has the more-fragments bit set or an offset above 0; a later one has an offset above 0.
//   - IPv6: EtherType 0x86dd, version 6, 40 bytes in the frame. Extension headers 0 (hop-by-hop),
//     43 (routing), 60 (destination), 135 (mobility), 139 (HIP), 140 (shim6), 51 (AH) and 44
//     (fragment) are walked, at most 8 of them, each whole in the frame; when one is not, or a ninth
//     follows, the packet has no upper protocol. Behind a fragment header with an offset above 0
//     the walk ends: its next-header field is the upper protocol.
//   - TCP, UDP: protocol 6 and 17, every fragment, whatever is left of the frame. The ports are there
//     when the packet is no later fragment and 4 bytes of the header are in the frame.
//   - ICMP: protocol 1 over IPv4, 58 over IPv6, every fragment. Type and code are there when the
//     packet is no later fragment and 2 bytes are in the frame.
//   - VXLAN: UDP whose ports are there, the destination 4789. VNI and inner ask for the header: 8 bytes
//     of UDP and 8 of VXLAN in the frame, whatever its flags, the I flag too: NICs know VXLAN by its port,
//     and what they count is what a flow means. Inside is an Ethernet frame.
//   - GRE: protocol 47; bare (no key, no inner), every fragment and version. Key and inner ask for the
//     header: no later fragment, version 0, routing bit clear, its 4 bytes with the optional checksum,
//     key and sequence words in the frame. Inside is IPv4 (0x0800), IPv6 (0x86dd) or an Ethernet
//     frame (0x6558); anything else is an inner packet with no header.
//   - Inner headers are parsed by the same rules, tunnels inside tunnels are not. An inner match that
//     asks for nothing (`inner any`) asks for the tunnel's header.
//   - A field matches when its header is there and field & mask == value. A field with mask 0 is not
//     looked at.
//   - `dport 0-65535` asks that the ports be there: it matches every port, and neither a later fragment
//     nor a header that is cut. `dport 0/0` has mask 0: it asks for nothing, as the bare clause does.
//   - incomplete: a header is announced and is not there, or was not reached, so that other clauses do
//     not see the headers behind it. The headers of a packet are incomplete when Ethernet is cut; when a tag stands
//     as the EtherType; when an EtherType of IP has no IP header as above; when extension headers end without an upper
//     protocol; and when the ports of TCP or UDP, or type and code of ICMP, are not there and the packet
//     is no later fragment. A missing tunnel header does not make them incomplete; a packet inside a tunnel has
//     headers of its own.
//
// # Drop
//
// A flow that drops by a header above Ethernet does not see that header behind a third tag or a ninth extension
// header, and not in a packet that is cut before it; the receiver may well see it. Such a packet passes, unless
// another flow drops `incomplete`. A later fragment has no ports and passes; without its first fragment, which is dropped,
// no host puts the datagram together.
//
// # Packets and headers that a flow does not see
//
// A flow sees the packets that pass its hook. On ingress, XDP's hook gets the packets that the NIC gives to the
// kernel. On egress, TCX does not see frames sent past the queueing discipline (PACKET_QDISC_BYPASS), those that a
// program forwards by XDP_REDIRECT or XDP_TX, and those that AF_XDP sends. A header that begins more than 32 KiB into
// the frame is not there, nor, on ingress, one behind the first buffer of a frame of several, nor, on egress, one
// deeper than 512 bytes in a socket buffer with pages. Both are incomplete headers.
//
// # Text form
//
// [ParseMatch] reads it, [Match.String] writes it in canonical form, without loss.
//
//	match  = "any" | { clause } .
//	clause = "eth"   { "src" mac | "dst" mac | "type" number }
//	       | "vlan"  { "id" number | "pcp" number | "dei" number }
//	       | "ipv4"  { "src" addr | "dst" addr | "proto" number | "tos" number | "ttl" number | "frag" frag }
//	       | "ipv6"  { "src" addr | "dst" addr | "label" number | "nexthdr" number | "tclass" number | "hoplimit" number }
//	       | "tcp"   { "sport" port | "dport" port }
//	       | "udp"   { "sport" port | "dport" port }
//	       | "icmp"  { "type" number | "code" number }
//	       | "incomplete"
//	       | "vxlan" { "vni" number } [ "inner" match ]
//	       | "gre"   { "key" number } [ "inner" match ] .
//	number = digits [ "/" digits ] .                  value, or value/mask
//	port   = number | digits "-" digits .             or first-last, both inclusive
//	addr   = address [ "/" ( length | address ) ] .   192.0.2.1, 10.0.0.0/8, 10.0.0.1/255.0.0.255
//	mac    = address [ "/" address ] .                02:00:00:00:00:00/ff:ff:ff:00:00:00
//	frag   = "any" | "no" | "yes" | "first" | "later" .
//	digits = decimal, without leading zeros, or "0x" hexadecimal .
//
// Words are separated by white space. Each clause stands once, in any order, and each field once;
// "vlan" stands up to twice, the outermost tag first. All that follows "inner" describes the headers inside
// the tunnel; everything else, the outer ones. Numbers have the width of their field: id 12 bits, pcp 3,
// dei 1, label 20, vni 24, key 32, type of eth 16, the rest 8. A value has no bit outside its mask.
package flow
