package explain

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/cmd/internal/replay"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// Explain itself compares the classifier with the linear matcher. The test gives it 10,000 random and broken packets
// with random sets of flows, on both sides, with and without Ethernet, and checks the reasons.
func TestExplainsAsTheLinearMatcher(t *testing.T) {
	need.BPF(t)
	rng := rand.New(rand.NewPCG(seed.Uint64(t), 0))
	const packets = 10_000
	results := map[Result]int{}
	explained, short := 0, 0
	for explained < packets {
		flows := gen.Flows(rng, 1+rng.IntN(30))
		for i := range flows {
			flows[i].Interface = []string{"", "", "eth0"}[rng.IntN(3)]
		}
		e, err := New(flows, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 400 {
			p := replay.Packet{Frame: gen.Packet(rng, flows), Direction: flow.Direction(rng.IntN(2)), Interface: []string{"", "eth0", "eth1"}[rng.IntN(3)]}
			if rng.IntN(4) == 0 && len(p.Frame) > 14 {
				p.Frame, p.Layer3 = p.Frame[14:], true
			}
			x, err := e.Explain(p)
			if err != nil {
				t.Fatal(err)
			}
			explained++
			if x.Short {
				short++
			}
			checkReasons(t, x, p)
			for _, r := range x.Reasons {
				results[r.Result]++
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d packets, %d of them too short for the kernel; flows: %v", explained, short, results)
	for r := Wins; r <= OtherInterface; r++ {
		if results[r] < 100 {
			t.Errorf("only %d flows have the result %q: the test looks at little", results[r], r)
		}
	}
}

// checkReasons checks each flow's result against its match.
func checkReasons(t *testing.T, x *Explanation, p replay.Packet) {
	t.Helper()
	for i, r := range x.Reasons {
		matches := oracle.Matches(r.Flow.Match, p) && r.Flow.Direction == p.Direction && (r.Flow.Interface == "" || r.Flow.Interface == p.Interface)
		if is := r.Result == Wins || r.Result == Shadowed; is != matches {
			t.Fatalf("%s (%s): %s, and it matches: %t\nframe %x", r.Flow.Name, r.Flow.Match, r.Result, matches, p.Frame)
		}
		if r.Result == Wins != (i == x.Winner) || r.Result == Shadowed && i < x.Winner {
			t.Fatalf("flow %d is %q, and flow %d wins", i, r.Result, x.Winner)
		}
		if r.Result == NoMatch && (oracle.Matches(r.Term, p) || r.Term.String() == r.Has.String()) {
			t.Fatalf("%s: the term %s is given as the reason, the packet has %s\nframe %x", r.Flow.Match, r.Term, r.Has, p.Frame)
		}
		if text := x.why(r); text == "" || strings.Contains(text, "has any") {
			t.Fatalf("the reason is %q", text)
		}
	}
}

func TestBuildMakesAFrameOfThePacketInWords(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"any", "eth src 02:00:00:00:00:01 dst 02:00:00:00:00:02 type 0xffff"},
		{"eth type 0x88b5", "type 0x88b5"},
		{"ipv4 src 1.2.3.4 dst 10.0.0.1 tcp dport 443", "ipv4 src 1.2.3.4 dst 10.0.0.1 proto 6 tos 0x00 ttl 64 frag no tcp sport 40000 dport 443"},
		{"tcp", "ipv4 src 192.0.2.1 dst 192.0.2.2"},
		{"udp dport 53", "udp sport 40000 dport 53"},
		{"eth type 0x86dd udp", "ipv6 src 2001:db8::1"},
		{"vlan id 100 pcp 5 dei 1 vlan id 7 ipv6 hoplimit 3 tclass 0x12 label 0xabcde icmp", "vlan id 100 pcp 5 dei 1 vlan id 7 pcp 0 dei 0 ipv6"},
		{"vlan id 3 eth type 0x0806", "type 0x0806 vlan id 3"},
		{"vlan", "vlan id 1"},
		{"icmp type 3 code 1", "icmp type 3 code 1"},
		{"ipv4 frag later udp", "proto 17 tos 0x00 ttl 64 frag later udp"},
		{"ipv4 frag first udp dport 9", "frag first udp sport 40000 dport 9"},
		{"ipv4 proto 2 tos 0xc0 ttl 1", "proto 2 tos 0xc0 ttl 1 frag no"},
		{"ipv6 nexthdr 0 tcp dport 80", "nexthdr 0 tclass 0x00 hoplimit 64 frag no tcp sport 40000 dport 80"},
		{"ipv6 nexthdr 44 udp", "nexthdr 44 tclass 0x00 hoplimit 64 frag no udp"},
		{"ipv6 nexthdr 89", "nexthdr 89"},
		{"ipv6 frag first udp dport 53", "nexthdr 44 tclass 0x00 hoplimit 64 frag first udp sport 40000 dport 53"},
		{"ipv6 frag later tcp", "hoplimit 64 frag later tcp"},
		{"tcp flags syn,ack", "tcp sport 40000 dport 9 flags syn,ack"},
		{"tcp", "tcp sport 40000 dport 9 flags ack"},
		{"esp", "proto 50 tos 0x00 ttl 64 frag no esp spi 0x00000100"},
		{"ipv6 esp spi 7", "nexthdr 50 tclass 0x00 hoplimit 64 frag no esp spi 0x00000007"},
		{"arp", "type 0x0806 arp op 1 sender 192.0.2.1 target 192.0.2.2"},
		{"vlan id 7 arp op reply target 10.0.0.1", "vlan id 7 pcp 0 dei 0 arp op 2 sender 192.0.2.1 target 10.0.0.1"},
		{"eth type arp", "arp op 1"},
		{"sctp dport 3868", "proto 132 tos 0x00 ttl 64 frag no sctp sport 40000 dport 3868 vtag 0x00000001"},
		{"ipv6 sctp vtag 7", "nexthdr 132 tclass 0x00 hoplimit 64 frag no sctp sport 40000 dport 9 vtag 0x00000007"},
		{"ipv4 ah spi 9", "proto 51 tos 0x00 ttl 64 frag no ah spi 0x00000009"},
		{"ipv4 frag later ah", "proto 51 tos 0x00 ttl 64 frag later ah"},
		{"ipv4 dscp ef udp", "tos 0xb8"},
		{"gre inner arp", "gre inner eth"},
		{"mpls label 7 tc 5", "type 0x8847 mpls label 7 tc 5 bos 1 ttl 64"},
		{"vlan id 9 mpls", "vlan id 9 pcp 0 dei 0 mpls label 16"},
		{"gre inner mpls label 7", "gre inner mpls label 7"},
		{"untagged udp", "type 0x0800 ipv4"},
		{"gre inner untagged ipv4", "gre inner eth"},
		{"vxlan vni 7 inner vlan id 9 ipv4 ttl 9 tcp dport 80", "vxlan vni 7 inner eth"},
		{"vxlan", "udp sport 40000 dport 4789 vxlan vni 0"},
		{"udp sport 7 vxlan vni 1 inner any", "udp sport 7 dport 4789 vxlan vni 1"},
		{"gre key 7 inner ipv6 udp dport 53", "gre key 7 inner ipv6"},
		{"gre inner eth dst 02:00:00:00:00:09 tcp", "gre inner eth"},
		{"ipip", "proto 4 tos 0x00 ttl 64 frag no ipip inner ipv4"},
		{"ipip inner ipv6 udp dport 53", "proto 41 tos 0x00 ttl 64 frag no ipip inner ipv6"},
		{"ipv4 proto 41 ipip", "ipip inner ipv6"},
		{"ipv6 nexthdr 41 ipip", "frag no ipip inner ipv6"},
		{"ipv6 ipip inner ipv4 src 10.0.0.1", "nexthdr 4 tclass 0x00 hoplimit 64 frag no ipip inner ipv4 src 10.0.0.1"},
		{"ipv4 frag later ipip", "proto 4 tos 0x00 ttl 64 frag later ipip"},
		{"geneve", "udp sport 40000 dport 6081 geneve vni 0 inner eth"},
		{"geneve vni 5 inner ipv4 udp dport 53", "geneve vni 5 inner ipv4"},
		{"udp sport 7 geneve vni 5 inner vlan id 9", "udp sport 7 dport 6081 geneve vni 5 inner eth"},
		{"gtpu", "udp sport 40000 dport 2152 gtpu teid 0x00000000 inner ipv4"},
		{"gtpu teid 7 inner ipv6 tcp", "gtpu teid 0x00000007 inner ipv6"},
		{"mplsudp label 7", "udp sport 40000 dport 6635 mplsudp label 7 tc 0 bos 1 ttl 64 inner ipv4"},
		{"ipv6 gre", "ipv6 src 2001:db8::1 dst 2001:db8::2 label 0x00000 nexthdr 47"},
	} {
		m, err := flow.ParseMatch(c.text)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Build(m)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := oracle.Describe(oracle.Packet{Frame: b}).String(); !strings.Contains(got, c.want) {
			t.Errorf("%s: the packet has %s, want %s", c.text, got, c.want)
		}
	}
	for _, text := range []string{"ipv4 dst 10.0.0.0/8", "tcp dport 1-9", "tcp dport 0-65535", "ipv4 frag yes", "eth dst 01:00:00:00:00:00/01:00:00:00:00:00",
		"incomplete", "tcp flags syn/syn,ack", "tcp flags none", "mpls bos 0", "mplsudp bos 0", "gtpu teid 0/1", "ipv4 ttl 0", "vxlan vni 0/1", "vlan id 0x1/0x1"} {
		m, err := flow.ParseMatch(text)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := Build(m); !errors.Is(err, ErrPacket) {
			t.Errorf("%s: %x, %v; want ErrPacket", text, b, err)
		}
	}
}

func TestBuildMakesAPacketThatTheMatchSelectsOrRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Uint64(t), 0))
	built := 0
	for range 3000 {
		for _, f := range gen.Flows(rng, 3) {
			b, err := Build(f.Match)
			if err != nil && !errors.Is(err, ErrPacket) {
				t.Fatalf("%s: %v", f.Match, err)
			}
			if err == nil {
				built++
				if !oracle.Matches(f.Match, oracle.Packet{Frame: b}) {
					t.Fatalf("%s: the frame %x does not match", f.Match, b)
				}
			}
		}
	}
	t.Logf("%d packets were built", built)
	if built < 100 {
		t.Error("the test looks at little")
	}
}

func TestParseHexTakesDumpsAndRefusesWords(t *testing.T) {
	for _, c := range []struct {
		text string
		want int // bytes; 0: no hex
	}{
		{"0102", 2}, {"0x0102", 2}, {"01 02:03", 3}, {"01:02", 2},
		{"\t0x0000:  0200 0000 0001\n\t0x0010:  0102", 8}, {"0000: 0102 03", 3},
		{"", 0}, {"010", 0}, {"tcp", 0}, {"any", 0}, {"ipv4", 0}, {"0xzz", 0},
	} {
		if b, ok := ParseHex(c.text); len(b) != c.want || ok != (c.want > 0) {
			t.Errorf("%q: %x, %t; want %d bytes", c.text, b, ok, c.want)
		}
	}
}

// The reason for a set names the packet's value and the set.
func TestReasonsNameTheSetThatTheValueIsNotIn(t *testing.T) {
	for _, c := range []struct{ packet, flow, want string }{
		{"tcp dport 25", "tcp dport {22, 80}", "tcp dport is 25, which is not in {22, 80}"},
		{"tcp dport 80", "tcp dport != {22, 80}", "tcp dport is 80, which != {22, 80} excludes"},
		{"tcp dport 80", "tcp dport != 80", "tcp dport is 80, which != 80 excludes"},
		{"ipv4 src 10.0.0.4", "ipv4 src 10.0.0.5-10.0.0.9", "ipv4 src is 10.0.0.4, which is not in 10.0.0.5-10.0.0.9"},
		{"vlan id 1 vlan id 3", "vlan id {1, 2} vlan id {1, 2}", "vlan vlan id is 3, which is not in {1, 2}"},
		{"vxlan vni 1 inner tcp dport 25", "vxlan inner tcp dport {22, 80}", "vxlan inner tcp dport is 25, which is not in {22, 80}"},
		{"udp dport 25", "tcp dport {22, 80}", "tcp, which the packet does not have"},
		{"ipv4 frag later tcp", "tcp dport != 80", "tcp dport != 80, which the packet does not have"},
		{"tcp dport 25", "tcp dport {1001, 1003, 1005, 1007, 1009, 1011, 1013, 1015, 1017, 1019, 1021}", "tcp dport is 25, which is not in {1001, 1003, 1005, 1007, 1009, 1011, 1013, 1015, 1017, 1019, …}"},
	} {
		packet, err := flow.ParseMatch(c.packet)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := Build(packet)
		if err != nil {
			t.Fatal(err)
		}
		p := replay.Packet{Frame: frame}
		x := &Explanation{Packet: p, Headers: oracle.Describe(p)}
		if got := x.why(x.whyNot(flow.MustParse("f", c.flow))); got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.flow, c.packet, got, c.want)
		}
	}
}
