package flow_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// No packet matches two flows that do not overlap. The packets are drawn to hit
// the flows of the set, so that they would.
func TestNoPacketMatchesFlowsThatDoNotOverlap(t *testing.T) {
	apart, together, witnessed := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "flows"), rapid.Uint64().Draw(t, "packets")))
		flows := gen.Flows(rng, 2+rng.IntN(12))
		alone := make([]*oracle.Matcher, len(flows))
		for i := range flows {
			flows[i].Direction = flow.Ingress
			alone[i] = oracle.New(flows[i : i+1])
		}
		both := make(map[[2]int]bool)
		for range 60 {
			p := oracle.Packet{Frame: gen.Packet(rng, flows)}
			var hit []int
			for i, m := range alone {
				if _, ok := m.Match(p); ok {
					hit = append(hit, i)
				}
			}
			for x, i := range hit {
				for _, j := range hit[x+1:] {
					both[[2]int{i, j}] = true
					if !flow.Overlap(&flows[i], &flows[j]) {
						t.Fatalf("%q and %q do not overlap, and packet %x matches both", flows[i].Match, flows[j].Match, p.Frame)
					}
				}
			}
		}
		for i := range flows {
			for j := range i {
				yes := flow.Overlap(&flows[i], &flows[j])
				switch {
				case yes != flow.Overlap(&flows[j], &flows[i]):
					t.Fatalf("%q overlaps %q one way only", flows[i].Match, flows[j].Match)
				case !yes:
					apart++
				default:
					together++
				}
			}
		}
		witnessed += len(both)
	})
	t.Logf("%d pairs do not overlap, %d do, for %d of which a packet was seen", apart, together, witnessed)
	if apart < together/4 || witnessed < together/20 {
		t.Error("the test looks at little")
	}
}

func TestOverlapConsidersImpliedHeaders(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"any", "tcp dport 1", true},
		{"ipv4", "ipv6", false},
		{"ipv4", "tcp", true},
		{"eth type 0x0806", "tcp", false},
		{"eth type 0x0806", "ipv4", false},
		{"eth type 0x0800", "ipv6", false},
		{"eth type 0x0800", "ipv4", true},
		{"vlan id 1", "vlan id 2", false},
		{"vlan id 1", "vlan id 1 vlan id 2", true},
		{"vlan id 1 vlan id 3", "vlan id 1 vlan id 2", false},
		{"tcp", "udp", false},
		{"tcp", "ipv4 proto 17", false},
		{"tcp", "ipv4 proto 6", true},
		{"tcp", "ipv6 nexthdr 17", false},
		{"tcp", "ipv6 nexthdr 0", true},
		{"icmp", "ipv4 proto 58", false},
		{"icmp", "ipv6 nexthdr 58", true},
		{"ipv4 frag later", "udp dport 53", false},
		{"ipv4 frag later", "udp", true},
		{"ipv4 frag no", "ipv4 frag yes", false},
		{"ipv4 frag first", "ipv4 frag yes", true},
		{"ipv6 frag later", "udp dport 53", false},
		{"ipv6 frag later", "udp", true},
		{"ipv6 frag no", "ipv6 frag yes", false},
		{"ipv6 frag first", "ipv6 frag yes", true},
		{"ipv6 frag first", "ipv4 frag no", false},
		{"tcp flags syn/syn", "tcp flags none/syn,ack", false},
		{"tcp flags syn/syn", "tcp flags ack/ack", true},
		{"tcp flags syn/syn", "udp", false},
		{"tcp flags syn/syn", "ipv4 frag later", false},
		{"tcp flags syn/syn", "incomplete", false},
		{"tcp dport 80", "incomplete", true},
		{"udp dport 80", "incomplete", false},
		{"esp spi 1", "esp spi 2", false},
		{"esp spi 1", "esp", true},
		{"esp spi 1", "incomplete", false},
		{"esp", "incomplete", true},
		{"esp", "tcp", false},
		{"esp", "ipv4 proto 50", true},
		{"esp", "ipv6 nexthdr 51", true},
		{"esp", "ipv4 proto 6", false},
		{"arp op 1", "arp op 2", false},
		{"arp op 1", "arp sender 10.0.0.0/8", true},
		{"arp sender 10.0.0.0/8", "arp sender 11.0.0.0/8", false},
		{"arp target 10.0.0.1", "arp target 10.0.0.0/8", true},
		{"arp", "eth type 0x0806", true},
		{"arp", "eth type 0x0800", false},
		{"arp", "ipv4", false},
		{"arp", "tcp", false},
		{"arp", "mpls", false},
		{"arp", "incomplete", true},
		{"arp op 1", "incomplete", false},
		{"sctp dport 1", "sctp dport 2", false},
		{"sctp vtag 1", "sctp vtag 2", false},
		{"sctp vtag 1", "sctp dport 1-9", true},
		{"sctp", "udp", false},
		{"sctp", "ipv4 proto 132", true},
		{"sctp vtag 1", "ipv4 frag later", false},
		{"sctp vtag 1", "incomplete", false},
		{"sctp", "incomplete", true},
		{"ipv4 ah spi 1", "ipv4 ah spi 2", false},
		{"ipv4 ah spi 1", "ipv4 proto 51", true},
		{"ipv4 ah", "ipv6", false},
		{"ipv4 ah", "tcp", false},
		{"ipv4 ah spi 1", "incomplete", false},
		{"ipv4 dscp 46", "ipv4 ecn 3", true},
		{"ipv4 dscp 46", "ipv4 tos 0xb9", true},
		{"ipv4 dscp 46", "ipv4 dscp 45", false},
		{"mpls label 1", "mpls label 2", false},
		{"mpls label 1", "mpls ttl 2", true},
		{"mpls", "ipv4", false},
		{"mpls", "tcp", false},
		{"mpls", "incomplete", false},
		{"mpls", "eth type 0x8848", true},
		{"mpls", "eth type 0x0806", false},
		{"eth type 0x8847 mpls", "eth type 0x8848", false},
		{"mpls", "vlan id 7", true},
		{"untagged", "vlan", false},
		{"untagged", "vlan id 7 tcp", false},
		{"untagged", "eth type 0x0806", true},
		{"vxlan inner untagged", "vlan id 7", true},
		{"vxlan inner untagged", "vxlan inner vlan id 7", false},
		{"ipv4 dst 10.0.0.0/8", "ipv4 dst 10.1.0.0/16", true},
		{"ipv4 dst 10.0.0.0/8", "ipv4 dst 11.0.0.0/8", false},
		{"ipv4 src 10.0.0.0/8", "ipv4 dst 11.0.0.0/8", true},
		{"udp dport 1000-2000", "udp dport 2000-3000", true},
		{"udp dport 1000-1999", "udp dport 2000-3000", false},
		{"udp dport 1000-1003", "udp dport 0x4/0x7", false},
		{"udp dport 1000-1004", "udp dport 0x4/0x7", true}, // 1004 is 0x3ec
		{"vxlan", "udp dport 4789", true},
		{"vxlan", "udp dport 4790", false},
		{"vxlan", "tcp", false},
		{"vxlan vni 1", "vxlan vni 2", false},
		{"vxlan inner tcp", "vxlan inner udp", false},
		{"vxlan inner tcp", "vxlan vni 7", true},
		{"gre key 1", "gre key 2", false},
		{"gre key 1", "gre", true},
		{"gre inner ipv4", "gre inner ipv6", false},
		{"gre", "vxlan", false},
		{"gre", "ipv4 frag later", true},
		{"gre inner any", "ipv4 frag later", false},
		{"ipip", "gre", false},
		{"ipip", "ipv4 proto 4", true},
		{"ipip", "ipv4 proto 41", true},
		{"ipip", "ipv4 proto 47", false},
		{"ipip inner ipv4", "ipv4 proto 41", false},
		{"ipip inner ipv6", "ipv4 proto 41", true},
		{"ipip inner ipv4", "ipip inner ipv6", false},
		{"ipip inner ipv4", "ipip inner tcp", true},
		{"ipip inner ipv6", "ipv6 nexthdr 4", false},
		{"ipip inner ipv6", "ipv6 nexthdr 60", true},
		{"ipip", "ipv4 frag later", true},
		{"ipip inner any", "ipv4 frag later", false},
		{"geneve", "vxlan", false},
		{"geneve", "udp dport 6081", true},
		{"geneve", "udp dport 4789", false},
		{"udp sport 7 geneve", "udp sport 8 geneve", false},
		{"geneve vni 1", "geneve vni 2", false},
		{"geneve inner ipv4", "geneve inner eth", true},
		{"gtpu teid 1", "gtpu teid 2", false},
		{"gtpu teid 1", "gtpu inner ipv4", true},
		{"gtpu", "geneve", false},
		{"gtpu", "incomplete", false},
		{"mplsudp label 1", "mplsudp label 2", false},
		{"mplsudp label 1", "mplsudp ttl 2", true},
		{"mplsudp label 1", "mpls label 1", false},
	} {
		a, b := flow.Flow{Match: parsed(t, c.a)}, flow.Flow{Match: parsed(t, c.b)}
		if flow.Overlap(&a, &b) != c.want || flow.Overlap(&b, &a) != c.want {
			t.Errorf("%q and %q overlap: want %v", c.a, c.b, c.want)
		}
	}
	here, there := flow.Flow{Interface: "eth0"}, flow.Flow{Interface: "eth1"}
	if flow.Overlap(&here, &there) || !flow.Overlap(&here, &flow.Flow{}) || flow.Overlap(&flow.Flow{}, &flow.Flow{Direction: flow.Egress}) {
		t.Error("side and interface are not honoured")
	}
}

func parsed(t testing.TB, text string) flow.Match {
	t.Helper()
	m, err := flow.ParseMatch(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
