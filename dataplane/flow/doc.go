// Package flow has the type [Flow]: a name, the packets to count, and what to do with them. [Parse] makes one from the
// text of its match, and [MustParse] from a text that stands in the program:
//
//	web := flow.MustParse("web", "ipv4 dst 192.0.2.10 tcp dport 443")
//	block := flow.MustParse("block", "ipv4 src 198.51.100.0/24", flow.Options{Action: flow.Drop})
//
// A program can also fill in a [Match] itself. [Flow.Validate] checks either, and every error satisfies
// errors.Is(err, ErrInvalid).
//
// The package holds no state, touches no kernel and imports only the standard library, so that every other package may
// use it. docs/flows.md defines the match of a flow, to the bit.
//
// # Text form
//
// [ParseMatch] reads it, [Match.String] writes it in canonical form, without loss.
//
//	match  = "any" | { clause } .
//	clause = "eth"   { "src" mac | "dst" mac | "type" number }
//	       | "vlan"  { "id" number | "pcp" number | "dei" number }
//	       | "untagged"
//	       | "mpls"  { "label" number | "tc" number | "bos" number | "ttl" number }
//	       | "ipv4"  { "src" addr | "dst" addr | "proto" number | "tos" number | "ttl" number | "frag" frag }
//	       | "ipv6"  { "src" addr | "dst" addr | "label" number | "nexthdr" number | "tclass" number | "hoplimit" number | "frag" frag }
//	       | "tcp"   { "sport" port | "dport" port | "flags" flags }
//	       | "udp"   { "sport" port | "dport" port }
//	       | "icmp"  { "type" number | "code" number }
//	       | "esp"   { "spi" number }
//	       | "incomplete"
//	       | "vxlan" { "vni" number } [ "inner" match ]
//	       | "gre"   { "key" number } [ "inner" match ] .
//	number = digits [ "/" digits ] .                  value, or value/mask
//	port   = number | digits "-" digits .             or first-last, both inclusive
//	addr   = address [ "/" ( length | address ) ] .   192.0.2.1, 10.0.0.0/8, 10.0.0.1/255.0.0.255
//	mac    = address [ "/" address ] .                02:00:00:00:00:00/ff:ff:ff:00:00:00
//	frag   = "any" | "no" | "yes" | "first" | "later" .
//	flags  = names [ "/" names ] | number .           syn/syn,ack: value/mask, SYN set and ACK clear
//	names  = "none" | name { ( "," | "|" ) name } .  fin, syn, rst, psh, ack, urg, ece, cwr, ae
//	digits = decimal, without leading zeros, or "0x" hexadecimal .
//
// Words are separated by white space. Each clause stands once, in any order, and each field
// once; "vlan" stands up to twice, the outermost tag first. The clauses behind "inner" describe
// the headers inside the tunnel, all others the outer headers. Numbers have the width of their
// field: id 12 bits, pcp 3, dei 1, label 20, vni 24, key and spi 32, type of eth 16,
// tc 3, bos 1, the rest 8. A value
// has no bit outside its mask.
package flow
