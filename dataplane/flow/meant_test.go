package flow_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// proposed is the text that a suggestion quotes.
var proposed = regexp.MustCompile(`did you mean "([^"]+)"( or "([^"]+)")?`)

// TestSuggestionsCure: what a suggestion says for a wrong match makes a match. The match in the last column has the text
// that the suggestion proposes, and is the whole of it but for the words that were right.
func TestSuggestionsCure(t *testing.T) {
	const excludes, noSizes = "give the packets to exclude to a flow of a lower priority", "value/mask"
	for _, c := range []struct{ text, suggests, cured string }{
		{"tpc dport 80", "", "tcp dport 80"},
		{"tcp dports 1", "", "tcp dport 1"},

		// Never the opposite of the wish.
		{"!tcp", excludes, "tcp"},
		{"not tcp", excludes, "tcp"},
		{"tcp !dport 80", "", "tcp dport != 80"},
		{"tcp dport!=80", "", "tcp dport != 80"},
		{"dport!=80", "", "tcp dport != 80"},
		{"tcp dport ne 80", "", "tcp dport != 80"},
		{"tcp dport not 80", "", "tcp dport != 80"},
		{"ipv4 src !1.2.3.4", "", "ipv4 src != 1.2.3.4"},
		{"ipv4 frag != no", excludes, "ipv4 frag yes"},
		{"tcp flags syn,!ack", "ack in syn/syn,ack", "tcp flags syn/syn,ack"},
		{"tagged", "", "vlan"},
		{"complete", "leave it out", "any"},

		// Operators, lists and ranges.
		{"tcp dport == 80", "", "tcp dport 80"},
		{"tcp dport =80", "", "tcp dport 80"},
		{"tcp dport=80", "", "tcp dport 80"},
		{"dport=80", "", "tcp dport 80"},
		{"tcp dport > 80", "", "tcp dport 81-65535"},
		{"tcp dport >=80", "", "tcp dport 80-65535"},
		{"tcp dport < 80", "", "tcp dport 0-79"},
		{"tcp dport le 80", "", "tcp dport 0-80"},
		{"tcp dport < 0", noSizes, "tcp"},
		{"ipv4 ttl < 4", "", "ipv4 ttl 0-3"},
		{"tcp flags < 4", noSizes, "tcp flags 0/0xffc"},
		{"tcp dport == {80, 443} sport 1", "leave the operator out", "tcp dport {80, 443}"},
		{"tcp dport in {80,443}", "leave the operator out", "tcp dport {80, 443}"},
		{"tcp dport ne {80, 443}", "write the operator as !=", "tcp dport != {80, 443}"},
		{"tcp dport !{80, 443}", "write the operator as !=", "tcp dport != {80, 443}"},
		{"ip saddr @blocklist", "", "ipv4 src @blocklist"},
		{"ipv4 src == @blocklist", "", "ipv4 src @blocklist"},
		{"ipv4 src !@blocklist", "", "ipv4 src != @blocklist"},
		{"ipv6 dst not @blocklist", "", "ipv6 dst != @blocklist"},
		{"ipv4 src=@blocklist", "", "ipv4 src @blocklist"},
		{"tcp dport @ports", "write the values", "tcp dport {22, 80}"},
		{"ipv4 frag first,later", "make a flow of each", "ipv4 frag first"},
		{"tcp or udp", "write a flow for each", "tcp dport {80, 443}"},
		{"tcp dport 1000:2000", "", "tcp dport 1000-2000"},
		{"tcp dport 80-", "", "tcp dport 80-65535"},
		{"ipv4 dst 10.0.0.5-9", "", "ipv4 dst 10.0.0.5-10.0.0.9"},
		{"(tcp)", "leave the brackets out", "tcp"},
		{"tcp (dport 80)", "leave the brackets out", "tcp dport 80"},

		// Names for numbers.
		{"https", "", "tcp dport https"},
		{"dns", "", "udp dport dns"},
		{"tcp https", "", "tcp dport https"},
		{"tcp dport HTTPS", "", "tcp dport https"},
		{"tcp dport htttps", "", "tcp dport https"},
		{"lldp", "", "eth type lldp"},
		{"lldp op 1", "", "eth type lldp"},
		{"eth lldp", "", "eth type lldp"},
		{"arp request", "", "arp op request"},
		{"arp tpa 10.0.0.1", "", "arp target 10.0.0.1"},
		{"ipv4 ah 7", "", "ipv4 ah spi 7"},
		{"eth type lldpp", "", "eth type lldp"},
		{"eth type vlan", `leave "type" out`, "vlan"},
		{"ipv4 proto lldp", "", "eth type lldp"},
		{"ipv4 proto smtp", "", "ipv4 proto sctp"},
		{"ipv6 nexthdr icmp", "", "ipv6 nexthdr icmpv6"},
		{"icmp echo-request", "", "ipv4 icmp type echo-request"},
		{"icmp type echo-request", "", "ipv4 icmp type echo-request"},
		{"icmp type echo-reqest", "", "ipv4 icmp type echo-request"},
		{"eth type 0800", "0x0800 if it is hexadecimal", "eth type 0x0800"},
		{"ether proto 0x806", "", "eth type 0x806"},
		{"eth proto 0x806", "", "eth type 0x806"},
		{"igmp", "", "ipv4 proto igmp"},
		{"igmp type 1", "", "ipv4 proto igmp"},
		{"ipv6 dccp", "", "ipv6 nexthdr dccp"},
		{"icmp6", "", "ipv6 icmp"},
		{"vlan 5", "", "vlan id 5"},
		{"tcp 80", "", "tcp dport 80"},

		// Tunnels by their names in other tools.
		{"sit", "", "ipv4 ipip inner ipv6"},
		{"6in4 inner udp", "", "ipv4 ipip inner ipv6 udp"},
		{"ip6ip6", "", "ipv6 ipip inner ipv6"},
		{"4in6", "", "ipv6 ipip inner ipv4"},
		{"ip6tnl", "", "ipv6 ipip"},
		{"ipv4 proto ipip", `leave "proto" out`, "ipv4 ipip"},
		{"gtp teid 7", "", "gtpu teid 7"},
		{"gtpu 7", "", "gtpu teid 7"},
		{"geneve 5", "", "geneve vni 5"},
		{"bareudp", "", "mplsudp"},
		{"mpls-udp label 3", "", "mplsudp label 3"},
		{"teid 7", "a field of gtpu", "gtpu teid 7"},
		{"gtpc", "", "udp dport gtp-control"},
		{"l2tpv3oip", "", "ipv4 proto l2tp"},
		{"vxlan-gpe", "", "udp dport 4790"},
		{"gre_key 7", "", "gre key 7"},
		{"nvgre", "", "gre"},
		{"erspan", "not looked into", "gre"},

		// Fields of other tools.
		{"saddr 1.2.3.4", "", "ipv4 src 1.2.3.4"},
		{"daddr ::1", "", "ipv6 dst ::1"},
		{"ipv4 saddr 1.2.3.4", "", "ipv4 src 1.2.3.4"},
		{"ip saddr 1.2.3.4", "", "ipv4 src 1.2.3.4"},
		{"dl_vlan 100", "", "vlan id 100"},
		{"dl_vlan=100", "", "vlan id 100"},
		{"vlan dl_vlan_pcp=5", "", "vlan pcp 5"},
		{"nw_src=10.0.0.0/8", "", "ipv4 src 10.0.0.0/8"},
		{"arp_tpa=192.0.2.1", "", "arp target 192.0.2.1"},
		{"arp arp_spa 192.0.2.1", "", "arp sender 192.0.2.1"},
		{"tp_dst=443", "", "tcp dport 443"},
		{"udp tp_dst=53", "", "udp dport 53"},
		{"udp tp_dst 53", "", "udp dport 53"},
		{"tun_id=0x64", "", "vxlan vni 0x64"},
		{"in_port=eth1", "interface", "any"},
		{"iifname eth1", "interface", "any"},
		{"ct state new", "no table of connections", "any"},
		{"ct_state=+est", "no table of connections", "any"},
		{"limit rate 5", "every packet", "any"},
		{"vlan vid 5", "", "vlan id 5"},
		{"mpls s 1", "", "mpls bos 1"},
		{"dscp 46", "is a field of ipv4 or ipv6", "ipv4 dscp 46"},
		{"ipv4 dscp eff", "", "ipv4 dscp ef"},
		{"ipv4 diffserv ef", "", "ipv4 dscp ef"},
		{"ipv6 tos 1", "", "ipv6 tclass 1"},
		{"ipv6 ttl 1", "", "ipv6 hoplimit 1"},
		{"ipv6 proto 6", "", "ipv6 nexthdr 6"},
		{"port 80", "of tcp or udp", "tcp dport 80"},
		{"host 10.0.0.1", "", "ipv4 src 10.0.0.1"},
		{"all", "", "any"},
	} {
		_, err := flow.ParseMatch(c.text)
		var errs flow.ParseErrors
		if !errors.As(err, &errs) {
			t.Errorf("%q: %v, want ParseErrors", c.text, err)
			continue
		}
		if said := errs[0].Suggestion; said == "" || !strings.Contains(said, c.suggests) {
			t.Errorf("%q: the suggestion is %q, which does not say %q", c.text, said, c.suggests)
		}
		for _, e := range errs {
			m := proposed.FindStringSubmatch(e.Suggestion)
			if m != nil && !strings.Contains(c.cured, m[1]) && (m[3] == "" || !strings.Contains(c.cured, m[3])) {
				t.Errorf("%q: %q proposes %q, which is not in %q", c.text, e.Word, m[1], c.cured)
			}
			if m == nil && c.suggests == "" && e.Suggestion != "" {
				t.Errorf("%q: %q proposes no text: %q", c.text, e.Word, e.Suggestion)
			}
		}
		if _, err := flow.ParseMatch(c.cured); err != nil {
			t.Errorf("%q, which %q was told to be: %v", c.cured, c.text, err)
		}
	}
}

// TestRangeOfOnePortIsThePort: programs that write ranges write this one too.
func TestRangeOfOnePortIsThePort(t *testing.T) {
	for text, want := range map[string]string{"tcp dport 443-443": "tcp dport 443", "udp sport 0-0": "udp sport 0"} {
		if m, err := flow.ParseMatch(text); err != nil || m.String() != want {
			t.Errorf("%q is %q, %v, want %q", text, m, err, want)
		}
	}
}
