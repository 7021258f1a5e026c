package rdma

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/golden"
	"github.com/flowtally/flowtally/probe"
)

var update = flag.Bool("update", false, "write the table of docs/flows.md")

// words has a match for each word of the language, and more where a backend treats values differently.
var words = []string{
	"any", "eth", "eth src 02:00:00:00:00:01", "eth dst 02:00:00:00:00:01", "eth type 0x88cc",
	"vlan", "vlan id 100", "vlan pcp 5", "vlan dei 1", "vlan id 100 vlan id 7", "untagged",
	"mpls", "mpls label 16", "mpls tc 5", "mpls bos 1", "mpls ttl 64",
	"arp", "arp op 1", "arp sender 192.0.2.1", "arp target 192.0.2.0/24",
	"ipv4", "ipv4 src 10.0.0.0/8", "ipv4 dst 192.0.2.10", "ipv4 proto 89", "ipv4 tos 0x10", "ipv4 dscp 46", "ipv4 ecn 3", "ipv4 ttl 1",
	"ipv4 frag no", "ipv4 frag yes", "ipv4 frag first", "ipv4 frag later",
	"ipv6", "ipv6 src 2001:db8::/32", "ipv6 dst 2001:db8::1", "ipv6 label 0x00007", "ipv6 nexthdr 89", "ipv6 tclass 0x10", "ipv6 dscp 46", "ipv6 ecn 3",
	"ipv6 hoplimit 1", "ipv6 frag no", "ipv6 frag yes", "ipv6 frag first", "ipv6 frag later",
	"tcp", "tcp sport 1024", "tcp dport 443", "tcp dport 1000-2000", "tcp flags syn/syn,ack", "tcp flags none/syn", "tcp flags ae", "tcp flags 0x200/0x200",
	"udp", "udp sport 1024", "udp dport 53", "udp dport 0",
	"sctp", "sctp sport 1024", "sctp dport 3868", "sctp vtag 0x00000001",
	"icmp", "icmp type 8", "icmp code 0",
	"esp", "esp spi 0x00001000", "esp spi 0x00000000",
	"ipv4 ah", "ipv4 ah spi 0x00001000",
	"incomplete",
	"vxlan", "vxlan vni 5", "vxlan inner any", "vxlan vni 5 inner tcp dport 80", "vxlan inner untagged",
	"gre", "gre key 7", "gre inner any", "gre inner ipv4", "gre key 7 inner mpls label 16",
	"ipip", "ipip inner any", "ipip inner ipv4 dst 192.0.2.10", "ipv6 ipip inner ipv6",
	"geneve", "geneve vni 5", "geneve inner any", "geneve vni 5 inner tcp dport 80",
	"gtpu", "gtpu teid 0x00001000", "gtpu inner any", "gtpu teid 0x00001000 inner ipv4 src 10.45.0.2",
	"mplsudp", "mplsudp label 16", "mplsudp tc 5", "mplsudp bos 1", "mplsudp ttl 64", "mplsudp inner ipv4",
	"ipv4 src 10.0.0.5-10.0.0.9", "ipv6 src {2001:db8::1, 2001:db8:1::/48}", "ipv4 dst != 10.0.0.0/8", "ipv4 tos 0x10-0x1f",
	"tcp dport {22, 80, 8000-8080}", "tcp dport != 80", "tcp flags {syn, rst}", "vlan id != 100", "vxlan vni {8, 10}",
}

// The table in docs/flows.md must say what limits says. Package xdp tests the columns of XDP and TCX.
func TestTheTableOfMatchesIsUpToDate(t *testing.T) {
	missing := map[string]bool{}
	for _, clause := range flow.Clauses() {
		missing[clause] = true
		for _, field := range flow.Fields(clause) {
			missing[clause+" "+field] = true
		}
	}
	var table strings.Builder
	table.WriteString("| match | sim | XDP, TCX | verbs | mlx5dv |\n| --- | --- | --- | --- | --- |\n")
	for _, text := range words {
		m := flow.MustParse("m", text).Match
		if m.String() != text {
			t.Errorf("%q is written %q", text, m)
		}
		clause := ""
		for word := range strings.FieldsSeq(text) {
			if slices.Contains(flow.Clauses(), word) {
				clause = word
				delete(missing, clause)
			}
			delete(missing, clause+" "+word)
		}
		fmt.Fprintf(&table, "| `%s` | yes | yes | %s | %s |\n", text, cell(t, m, withVerbs), cell(t, m, withDevX))
	}
	for word := range missing {
		t.Errorf("%q has no row", word)
	}
	golden.CompareSection(t, "../../../docs/flows.md", "words", table.String(), *update)
}

// cell returns "yes", or "no" with the reason.
func cell(t *testing.T, m flow.Match, by steeringAPI) string {
	t.Helper()
	_, err := ruleMatches(m, by)
	var no *probe.UnsupportedError
	if errors.As(err, &no) {
		return "no: " + no.Reason
	}
	if err != nil {
		t.Errorf("%s: %v", m, err)
	}
	return "yes"
}
