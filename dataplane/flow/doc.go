// Package flow describes which packets to count. A [Flow] has a name, a [Match] on packet headers, and options such as a
// priority. [Parse] makes one from text; [MustParse] does so for text that is part of the program:
//
//	web := flow.MustParse("web", "ipv4 dst 192.0.2.10 tcp dport 443")
//	block := flow.MustParse("block", "ipv4 src 198.51.100.0/24", flow.Options{Action: flow.Drop})
//
// A program can also build the structs itself and call [Flow.Validate]. Every error of this package satisfies
// errors.Is(err, ErrInvalid).
//
// docs/flows.md defines, to the bit, which packets a match selects.
//
// # Text form
//
// [ParseMatch] parses this grammar, and [Match.String] prints it. Parsing the printed text returns an equal match.
//
//	match  = "any" | { clause } .
//	clause = "eth"   { "src" mac | "dst" mac | "type" number }
//	       | "vlan"  { "id" number | "pcp" number | "dei" number }
//	       | "untagged"
//	       | "mpls"  { "label" number | "tc" number | "bos" number | "ttl" number }
//	       | "arp"   { "op" number | "sender" addr | "target" addr }
//	       | "ipv4"  { "src" addr | "dst" addr | "proto" number | "tos" number
//	                 | "dscp" number | "ecn" number | "ttl" number | "frag" frag }
//	       | "ipv6"  { "src" addr | "dst" addr | "label" number | "nexthdr" number
//	                 | "tclass" number | "dscp" number | "ecn" number | "hoplimit" number | "frag" frag }
//	       | "tcp"   { "sport" port | "dport" port | "flags" flags }
//	       | "udp"   { "sport" port | "dport" port }
//	       | "sctp"  { "sport" port | "dport" port | "vtag" number }
//	       | "icmp"  { "type" number | "code" number }
//	       | "esp"   { "spi" number }
//	       | "ah"    { "spi" number }
//	       | "incomplete"
//	       | "vxlan" { "vni" number } [ "inner" match ]
//	       | "gre"   { "key" number } [ "inner" match ]
//	       | "ipip"  [ "inner" match ]
//	       | "geneve"  { "vni" number } [ "inner" match ]
//	       | "gtpu"    { "teid" number } [ "inner" match ]
//	       | "mplsudp" { "label" number | "tc" number | "bos" number | "ttl" number } [ "inner" match ] .
//	number = value [ "/" digits ] .                   value, or value/mask
//	port   = number | value "-" value .               or first-last, both inclusive
//	value  = digits | name .                          https for a port, gre for proto, ef for dscp; printed as digits
//	addr   = address [ "/" ( length | address ) ] .   192.0.2.1, 10.0.0.0/8, 10.0.0.1/255.0.0.255
//	mac    = address [ "/" address ] .                02:00:00:00:00:00/ff:ff:ff:00:00:00
//	frag   = "any" | "no" | "yes" | "first" | "later" .
//	flags  = names [ "/" names ] | number .           syn/syn,ack: value/mask, SYN set and ACK clear
//	names  = "none" | name { ( "," | "|" ) name } .  fin, syn, rst, psh, ack, urg, ece, cwr, ae
//	digits = decimal, without leading zeros, or "0x" hexadecimal .
//
// In the place of a number, port, addr, mac or flags there may be several, or those to exclude ([Choice]):
//
//	set     = [ "!=" ] ( "{" list "}" | list | "@" name ) .
//	list    = element { "," element } .               without braces not for flags, where "," joins names
//	element = number | port | addr | mac | flags | first "-" last .
//	first, last                                       of numbers and addresses: 10.0.0.5-10.0.0.9
//	name                                              of a set, for src and dst of ipv4 and ipv6: @blocklist
//
// A field with a set is present, and it has one of the values, or with "!=" none of them: tcp dport {22, 80, 8000-8080},
// ipv4 src != 10.0.0.0/8. Within braces "|" joins flags: {syn, syn|ack}. White space may stand around "!=", "," and braces.
// Elements that others contain are left out and overlapping ranges joined; String prints the rest in ascending order.
//
// White space separates words. Clauses may come in any order, each at most once, and so may the fields of a clause. Only
// "vlan" may come twice, for the outermost tag and the next one. Clauses after "inner" describe the headers inside the
// tunnel.
//
// Numbers must fit the header field: id has 12 bits, pcp 3, dei 1, label 20, vni 24, key, spi, vtag and teid 32, op and the type
// of eth 16, tc 3, bos 1, dscp 6, ecn 2, and all others 8. A value must not have bits outside its mask.
//
// Ports, proto, nexthdr, dscp, ecn, op and the types of eth and icmp have names. A name of an ICMP type needs the clause ipv4
// or ipv6. dscp and ecn are parts of tos and tclass: [Match.String] writes the word whose bits are asked for.
package flow
