package flow

import (
	"fmt"
	"strings"

	"github.com/flowtally/flowtally/internal/spelling"
)

// The suggestions for what no match can express. Proposing the nearest word would mislead: "tcp" for "!tcp".
const (
	excludesNothing = "a match excludes values of a field (tcp dport != 80), and no clause: give the packets to exclude to a flow of a lower priority number"
	hasOneWord      = "the field takes one word: make a flow of each"
	comparesNoSizes = "write value/mask, or a set of values"
	hasNoBrackets   = "leave the brackets out: a packet must match every clause"
	namesInterface  = "leave it out, and name the interface beside the match, as the flow's \"interface\""
	hasNoState      = "leave it out: a packet is matched by its own bytes, and there is no table of connections"
	hasNoLimit      = "leave it out: a flow counts or drops every packet that it matches"
	looksNotInside  = "ERSPAN is not looked into: its frames are copies, and types I and II share one GRE protocol; gre counts the packets that carry them"
)

// operators of other languages and their meaning. The longest come first, for cutOperator.
var operators = []struct{ text, meaning string }{
	{"!=", "!="}, {"<>", "!="}, {"==", "="}, {">=", ">="}, {"<=", "<="}, {"!", "!="}, {">", ">"}, {"<", "<"}, {"=", "="},
}

var operatorWords = map[string]string{"ne": "!=", "not": "!=", "eq": "=", "is": "=", "in": "=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}

// cutOperator splits an operator from the beginning of a word. operator is empty if there is none.
func cutOperator(text string) (operator, rest string) {
	if operator := operatorWords[text]; operator != "" {
		return operator, ""
	}
	for _, o := range operators {
		if rest, ok := strings.CutPrefix(text, o.text); ok {
			return o.meaning, rest
		}
	}
	return "", text
}

// synonyms has the clauses by their names in other tools. A tunnel that has no clause here is what carries it.
var synonyms = map[string]string{"ip": "ipv4", "inet": "ipv4", "ip6": "ipv6", "inet6": "ipv6", "ether": "eth", "ethernet": "eth", "tagged": "vlan", "dot1q": "vlan",
	"ipinip": "ipip", "ip-in-ip": "ipip", "ipxip": "ipip", "ip6tnl": "ipv6 ipip",
	"4in4": "ipv4 ipip inner ipv4", "ip4ip4": "ipv4 ipip inner ipv4", "ipencap": "ipip inner ipv4",
	"6in4": "ipv4 ipip inner ipv6", "sit": "ipv4 ipip inner ipv6", "6to4": "ipv4 ipip inner ipv6", "isatap": "ipv4 ipip inner ipv6", "ip6ip": "ipv4 ipip inner ipv6",
	"4in6": "ipv6 ipip inner ipv4", "ip4ip6": "ipv6 ipip inner ipv4", "ipip6": "ipv6 ipip inner ipv4", "ds-lite": "ipv6 ipip inner ipv4",
	"6in6": "ipv6 ipip inner ipv6", "ip6ip6": "ipv6 ipip inner ipv6",
	"gtp": "gtpu", "gtp-u": "gtpu", "gtpv1": "gtpu", "gtp1u": "gtpu", "gtp1-u": "gtpu",
	"gtpc": "udp dport gtp-control", "gtp-c": "udp dport gtp-control", "l2tpv2": "udp dport l2tp", "l2tpv3oip": "ipv4 proto l2tp", "vxlan-gpe": "udp dport 4790",
	"nvgre": "gre", "gre_key": "gre key", "pppoes": "eth type pppoe",
	"mpls-udp": "mplsudp", "mpls-in-udp": "mplsudp", "mplsinudp": "mplsudp", "mplsoudp": "mplsudp", "bareudp": "mplsudp",
}

// aliases has the address fields by their names in other tools.
var aliases = map[string]string{
	"saddr": "src", "srcip": "src", "src_ip": "src", "source": "src", "nw_src": "src", "ip_src": "src",
	"daddr": "dst", "dstip": "dst", "dst_ip": "dst", "destination": "dst", "nw_dst": "dst", "ip_dst": "dst",
}

// namesake has, by clause, fields that users call by their name in another clause, such as "ttl" of ipv6.
var namesake = map[string]map[string]string{
	"eth":  {"proto": "type"},
	"ipv4": {"diffserv": "dscp"},
	"arp":  {"operation": "op", "opcode": "op", "oper": "op", "src": "sender", "saddr": "sender", "spa": "sender", "dst": "target", "daddr": "target", "tpa": "target"},
	"tcp":  {"tp_src": "sport", "tp_dst": "dport"},
	"udp":  {"tp_src": "sport", "tp_dst": "dport"},
	"sctp": {"tp_src": "sport", "tp_dst": "dport", "tag": "vtag"},
	"vlan": {"vid": "id"},
	"mpls": {"s": "bos"},
	"ipv6": {"tc": "tclass", "tos": "tclass", "ttl": "hoplimit", "proto": "nexthdr"},
}

// switched has the fields of Open vSwitch that have the clause in their name, or have it ahead of them.
var switched = map[string]string{
	"dl_src": "eth src", "dl_dst": "eth dst", "dl_type": "eth type", "eth_src": "eth src", "eth_dst": "eth dst", "eth_type": "eth type",
	"dl_vlan": "vlan id", "dl_vlan_pcp": "vlan pcp", "vlan_vid": "vlan id", "vlan_pcp": "vlan pcp",
	"arp_op": "arp op", "arp_spa": "arp sender", "arp_tpa": "arp target",
	"nw_proto": "ipv4 proto", "ip_proto": "ipv4 proto", "nw_tos": "ipv4 tos", "nw_ttl": "ipv4 ttl", "ip_dscp": "ipv4 dscp", "nw_ecn": "ipv4 ecn", "ip_ecn": "ipv4 ecn",
	"ipv6_src": "ipv6 src", "ipv6_dst": "ipv6 dst", "ipv6_label": "ipv6 label",
	"tp_src": "tcp sport", "tp_dst": "tcp dport", "tcp_src": "tcp sport", "tcp_dst": "tcp dport", "udp_src": "udp sport", "udp_dst": "udp dport",
	"sctp_src": "sctp sport", "sctp_dst": "sctp dport", "icmp_type": "icmp type", "icmp_code": "icmp code",
	"icmpv6_type": "ipv6 icmp type", "icmpv6_code": "ipv6 icmp code",
	"mpls_label": "mpls label", "mpls_tc": "mpls tc", "mpls_bos": "mpls bos", "mpls_ttl": "mpls ttl", "tun_id": "vxlan vni", "tunnel_id": "vxlan vni",
}

// numbered has the field that a number directly after a clause probably means: "vlan 100" is "vlan id 100".
var numbered = map[string]string{"vlan": "id", "vxlan": "vni", "gre": "key", "mpls": "label", "esp": "spi", "ah": "spi", "icmp": "type", "tcp": "dport", "udp": "dport", "sctp": "dport",
	"geneve": "vni", "gtpu": "teid", "mplsudp": "label", "arp": "op",
}

// clauseIn returns the clause of a synonym or of a single word: of several clauses the tunnel, or else the first. It returns nil if
// there is none.
func clauseIn(text string) *clause {
	var first *clause
	for _, word := range strings.Fields(text) {
		c := clauseNamed(word)
		if c != nil && c.inner != nil {
			return c
		}
		if first == nil {
			first = c
		}
	}
	return first
}

// didYouMean asks for the known word that a misspelled one stands for, or is empty if no known word is close.
func didYouMean(word string, known []string) string {
	if near := spelling.Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

func meant(text string) string { return fmt.Sprintf("did you mean %q?", strings.TrimSpace(text)) }

// behind proposes the field of a clause. It leaves the clause out if it is the open one.
func behind(open *clause, clause, rest string) string {
	if open != nil && open.name == clause {
		return meant(rest)
	}
	return meant(clause + " " + rest)
}
