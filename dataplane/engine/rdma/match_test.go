package rdma

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
	labseed "github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
	"github.com/flowtally/flowtally/probe"
)

// The cases are the rows of the table in match.go: how many rules a match takes with each steering API, or why it is refused.
func TestHardwareTakesExactlyTheMatchesOfTheTable(t *testing.T) {
	for _, c := range []struct {
		match       string
		verbs, devx any // the number of rules, or a part of the reason
	}{
		{"any", 1, 1},
		{"eth", 1, 1},
		{"eth src 02:00:00:00:00:01 dst 01:00:00:00:00:00/01:00:00:00:00:00", 1, 1},
		{"eth type 0x0806", 1, 1},
		{"eth type 0x0800/0xff00", 1, 1},
		{"eth type 0x8100", "a third one", "a third one"},
		{"eth type 0x88a8", "a third one", "a third one"},
		{"eth type 0x8000/0x8000", "a third one", "a third one"},
		{"eth type 0x0026", "a length", "a length"},
		{"eth type 0/0x8000", "a length", "a length"},
		{"vlan", "C-tag", 2},
		{"vlan id 100 pcp 3", "C-tag", 2},
		{"vlan id 200 vlan id 7 ipv6 tcp dport 5000", "C-tag", 4},
		{"untagged", "the absence of a tag", 1},
		{"ipv4 vxlan vni 5 inner untagged", "inner untagged", "inner untagged"},
		{"ipv4 vxlan inner eth type 0x0806 untagged", "inner untagged", "inner untagged"},
		{"ipv6 frag yes", "no such field", "a whole datagram"},
		{"ipv6 frag no udp dport 53", "no such field", "a whole datagram"},
		{"ipv4 src 10.0.0.0/8 dst 10.0.0.1/255.0.0.255", 1, 1},
		{"ipv4 proto 89", 1, 1},
		{"ipv4 proto 16/0xf0 tos 0x10/0xfc", 1, 1},
		{"ipv6 src 2001:db8::/32 label 5 tclass 1", 1, 1},
		{"ipv6 nexthdr 17", "behind the extension headers", "behind the extension headers"},
		{"ipv6 nexthdr 17 udp", "behind the extension headers", "behind the extension headers"},
		{"ipv4 ttl 64", "refuse a mask", "not every device"},
		{"incomplete", "no field says", "no field says"},
		{"ipv6 udp incomplete", "no field says", "no field says"},
		{"gre key 7 inner incomplete", "no spec asks", "inner incomplete"},
		{"ipv6 hoplimit 1", "refuse a mask", "not every device"},
		{"ipv4 frag yes", "refuse a mask on the flags", 1},
		{"ipv4 frag no udp dport 53", "refuse a mask on the flags", 1},
		{"ipv4 frag first", "refuse a mask on the flags", "not one fragment from another"},
		{"ipv4 frag later", "refuse a mask on the flags", "not one fragment from another"},
		{"tcp", 2, 2},
		{"udp", 2, 2},
		{"icmp", 2, 2},
		{"gre", 2, 2},
		{"ipv4 icmp", 1, 1},
		{"eth type 0x86dd tcp", 1, 1},
		{"eth type 0x0800/0xffff udp dport 53", 1, 1},
		{"ipv4 udp sport 1 dport 53", 1, 1},
		{"ipv6 tcp dport 80/0xfff0", 1, 1},
		{"ipv4 udp dport 1000-2000", 8, 8},
		{"udp dport 1000-2000", 16, 16},
		{"ipv4 udp dport 0", "later fragment", "later fragment"},
		{"ipv4 udp dport 0-1023", "later fragment", "later fragment"},
		{"ipv4 udp sport 7 dport 0-1023", 1, 1},
		{"ipv4 udp sport 1-65534 dport 1-65534", "more than 256 rules", "more than 256 rules"},
		{"ipv4 tcp flags syn/syn,ack", "TCP spec has no flags", 1},
		{"tcp dport 80 flags syn", "TCP spec has no flags", 2},
		{"ipv4 tcp dport 0 flags syn/syn,ack", "TCP spec has no flags", 1},
		{"ipv4 tcp dport 80 flags none/syn", "TCP spec has no flags", 1},
		{"ipv4 tcp flags none", "TCP spec has no flags", "without any"},
		{"ipv4 tcp dport 0 flags none/syn", "TCP spec has no flags", "without any"},
		{"esp", 2, 2},
		{"ipv4 esp spi 7", 1, 1},
		{"esp spi 0x100/0xffffff00", 2, 2},
		{"esp spi 0", "later fragment", "later fragment"},
		{"ipv4 vxlan inner ipv4 esp spi 7", "outer headers alone", 1},
		{"ipv4 ah", 1, 1},
		{"ipv4 ah spi 7", "no spec", "no field"},
		{"sctp", 2, 2},
		{"ipv6 sctp", 1, 1},
		{"sctp dport 3868", "no spec", "no field"},
		{"sctp vtag 7", "no spec", "no field"},
		{"arp", 1, 1},
		{"eth dst ff:ff:ff:ff:ff:ff arp", 1, 1},
		{"arp op 1", "no spec", "no field"},
		{"arp target 192.0.2.1", "no spec", "no field"},
		{"ipv4 vxlan inner arp", 1, 1},
		{"mpls", 2, 2},
		{"mpls label 16 tc 1 bos 1 ttl 9", 2, 2},
		{"mpls label 0", 2, 2},
		{"eth type 0x8847 mpls label 16", 1, 1},
		{"vlan id 5 mpls label 16", "C-tag", 4},
		{"ipv4 gre inner mpls label 16", "inner mpls", "inner mpls"},
		{"ipv4 icmp type 8", "no spec", "flex parser"}, // and TestICMPTypesAreMatchedOnlyWithAParser
		{"icmp code 0", "no spec", "flex parser"},
		{"ipv4 vxlan", 1, 1},
		{"udp dport 4000-5000 vxlan", 2, 2},
		{"ipv4 vxlan inner any", "header of the tunnel", "header of the tunnel"},
		{"ipv4 vxlan vni 5 inner any", 1, 1},
		{"ipv4 vxlan inner eth", "whole Ethernet header", "whole Ethernet header"},
		{"ipv4 vxlan vni 5 inner eth", "whole Ethernet header", "whole Ethernet header"},
		{"ipv4 vxlan inner eth type 0x0806", 1, 1},
		{"vxlan vni 5", 2, 2},
		{"ipv4 udp sport 5 vxlan vni 5 inner any", 1, 1},
		{"ipv4 vxlan vni 5 inner ipv4 dst 10.0.0.1 tcp dport 80", 1, 1},
		{"ipv4 vxlan inner udp dport 53", 2, 2},
		{"ipv4 vxlan inner vlan id 1", "inner vlan", 2},
		{"ipv4 vxlan inner ipv4 ttl 1", "inner ipv4 ttl", "inner ipv4 ttl"},
		{"ipv4 gre key 7", "key 0", 1},
		{"ipv4 gre inner any", "header of the tunnel", "header of the tunnel"},
		{"ipv4 gre key 7 inner any", "key 0", 1},
		{"ipv4 gre inner ipv6 udp", 1, 1},
		{"ipv4 gre inner eth", "whole Ethernet header", "whole Ethernet header"},
		{"ipv4 gre inner eth type 0x0806", 1, 1},
		{"ipv4 gre inner ipv4 tcp dport 0", "later fragment", "later fragment"},
		{"ipip", 4, 4},
		{"ipv6 ipip", 2, 2},
		{"ipv4 proto 41 ipip", 1, 1},
		{"vlan id 5 ipv4 ipip", "C-tag", 4},
		{"ipv4 ipip inner any", "IP in IP", "IP in IP"},
		{"ipv4 ipip inner ipv4", "IP in IP", "IP in IP"},
		{"ipv4 geneve", 1, 1},
		{"udp sport 7 geneve", 2, 2},
		{"ipv4 geneve vni 5", "no spec", "flex parser that is set up for Geneve"},
		{"ipv4 geneve inner ipv4", "no spec", "flex parser that is set up for Geneve"},
		{"ipv4 gtpu", 1, 1},
		{"ipv4 gtpu teid 5", "no spec", "flex parser that is set up for GTP-U"},
		{"ipv4 gtpu inner ipv4", "no spec", "flex parser that is set up for GTP-U"},
		{"ipv6 mplsudp", 1, 1},
		{"ipv6 mplsudp label 16", "set up for MPLS", "set up for MPLS"},
		{"ipv6 mplsudp inner any", "set up for MPLS", "set up for MPLS"},
		{"ipv4 tcp dport {22, 80, 443}", 3, 3},
		{"tcp sport {1, 3} dport {22, 80}", 8, 8},
		{"tcp dport {22, 8000-8080}", 8, 8},
		{"tcp dport != 80", "later fragment", "later fragment"},
		{"tcp sport 9 dport != 80", 32, 32},
		{"ipv4 src 10.0.0.5-10.0.0.9", 3, 3},
		{"ipv4 src != 10.0.0.0/8", 8, 8},
		{"ipv4 tcp flags {syn, syn|ack}", "TCP spec has no flags", 2},
		{"ipv4 tcp flags {syn, none}", "TCP spec has no flags", "without any"},
		{"vlan id {5, 6} ipv4", "C-tag", 4},
		{"ipv4 proto {6, 17} tcp", 1, 1},
		{"ipv4 src {10.0.0.1, 10.0.0.3} vxlan vni {5, 7} inner ipv4 tcp dport {80, 443}", 8, 8},
		{"ipv4 src != 10.0.0.1 dst != 10.0.0.2", "more than", "more than"},
	} {
		m := flow.MustParse("m", c.match).Match
		for by, want := range map[steeringAPI]any{withVerbs: c.verbs, withDevX: c.devx} {
			rules, err := ruleMatches(m, by)
			switch want := want.(type) {
			case int:
				if err != nil || len(rules) != want {
					t.Errorf("%s by API %d: %d rules and %v, want %d", c.match, by, len(rules), err, want)
				}
			case string:
				if !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s by API %d: %v, want a refusal that says %q", c.match, by, err, want)
				}
			}
			for _, r := range rules {
				a := ibv.FlowAttr{Specs: append(verbsSpecs(r), ibv.DropSpec{})}
				if err := a.Check(); by == withVerbs && err != nil {
					t.Errorf("%s: the kernel would refuse its specs: %v", c.match, err)
				}
			}
		}
	}
}

// If a flex parser is set up for ICMP, DevX matches types and codes of the outer header.
func TestICMPTypesAreMatchedOnlyWithAParser(t *testing.T) {
	for _, c := range []struct {
		match string
		want  any // the values of misc_3, or a part of the reason
	}{
		{"ipv4 icmp type 8", []ibv.MatchMisc3{{ICMPType: 8}}},
		{"ipv6 icmp type 128 code 0", []ibv.MatchMisc3{{ICMPv6Type: 128}}},
		{"icmp type 3 code 4", []ibv.MatchMisc3{{ICMPType: 3, ICMPCode: 4}, {ICMPv6Type: 3, ICMPv6Code: 4}}},
		{"icmp type 0 code 4", []ibv.MatchMisc3{{ICMPCode: 4}, {ICMPv6Code: 4}}},
		{"ipv4 icmp type 0", "later fragment"},
		{"icmp type 0/0x80 code 0", "later fragment"},
		{"ipv4 vxlan vni 5 inner ipv4 icmp type 8", "outer headers"},
		{"ipv4 icmp", []ibv.MatchMisc3{{}}},
	} {
		m := flow.MustParse("m", c.match).Match
		rules, err := ruleMatches(m, withDevX|parsesICMP)
		if reason, ok := c.want.(string); ok {
			if !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), reason) {
				t.Errorf("%s: %v, want a refusal that says %q", c.match, err, reason)
			}
			continue
		}
		var got []ibv.MatchMisc3
		for _, r := range rules {
			val, mask := devxParam(r)
			got = append(got, val.Misc3)
			asked := ibv.MatchMisc3{ICMPType: m.ICMP.Type.Mask, ICMPCode: m.ICMP.Code.Mask}
			if r.IPv6 != nil {
				asked = ibv.MatchMisc3{ICMPv6Type: m.ICMP.Type.Mask, ICMPv6Code: m.ICMP.Code.Mask}
			}
			if mask.Misc3 != asked {
				t.Errorf("%s: mask %+v, want %+v", c.match, mask.Misc3, asked)
			}
		}
		if diff := cmp.Diff(c.want, any(got)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", c.match, err, diff)
		}
	}
}

// The rules of a flow must be the flow: a packet of the flow matches exactly one of them, and any other packet none.
func TestAPacketMatchesOneRuleIfAndOnlyIfItMatchesTheFlow(t *testing.T) {
	rng := labseed.Rand(t)
	compared, hits := 0, 0
	for range 2000 {
		f := gen.Flows(rng, 1)[0]
		f.Interface, f.Direction = "", flow.Ingress
		rules, err := ruleMatches(f.Match, withDevX|parsesICMP)
		if err != nil || f.Match.Inner() != nil && len(f.Match.Inner().VLAN) > 0 {
			continue // tagged can only check outer tags
		}
		for range 20 {
			frame := gen.Packet(rng, []flow.Flow{f})
			packet := oracle.Packet{Frame: frame}
			_, want := oracle.New([]flow.Flow{f}).Match(packet)
			n := 0
			for _, r := range rules {
				one := r.Match
				if r.inner != nil {
					one = one.WithInner(r.inner.Match)
				}
				if _, ok := oracle.New([]flow.Flow{{Match: one}}).Match(packet); ok && tagged(frame, r.tags) && carries(packet, r) {
					n++
				}
			}
			if n > 1 || n == 1 != want {
				t.Fatalf("%s: a packet matches the flow: %v, and %d of its %d rules\n%x", f.Match, want, n, len(rules), frame)
			}
			compared++
			hits += n
		}
	}
	t.Logf("%d packets compared, %d of them hits", compared, hits)
	if hits < compared/10 {
		t.Error("few packets hit: the test looks at little")
	}
}

// carries reports whether a packet of IP in IP has the protocol number of the rule. Behind extension headers the
// description does not tell the number: there the rule of IPv4 inside stands for both.
func carries(p oracle.Packet, r ruleMatch) bool {
	if r.ipip == 0 {
		return true
	}
	switch d := oracle.Describe(p); {
	case d.IPv4 != nil:
		return d.IPv4.Proto.Value == r.ipip
	case slices.Contains([]uint8{flow.ProtoIPIP, flow.ProtoIPv6}, d.IPv6.NextHeader.Value):
		return d.IPv6.NextHeader.Value == r.ipip
	}
	return r.ipip == flow.ProtoIPIP
}

// tagged reports whether the outer tags of a frame are of these kinds.
func tagged(frame []byte, kinds []uint16) bool {
	for i, k := range kinds {
		if at := 12 + 4*i; len(frame) < at+4 || uint16(frame[at])<<8|uint16(frame[at+1]) != k {
			return false
		}
	}
	return true
}

func TestVerbsSpecsHaveEveryHeaderOfAFlow(t *testing.T) {
	m := flow.MustParse("m", "eth src 02:00:00:00:00:01 ipv4 dst 192.0.2.0/24 tos 4 udp sport 9 vxlan vni 5 inner eth dst 02:00:00:00:00:02 ipv6 label 7 tcp dport 80").Match
	rules, err := ruleMatches(m, withVerbs)
	if err != nil {
		t.Fatal(err)
	}
	all := [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	want := []ibv.Spec{
		ibv.EthSpec{Val: ibv.EthFilter{SrcMAC: [6]byte{2, 0, 0, 0, 0, 1}}, Mask: ibv.EthFilter{SrcMAC: all}},
		ibv.IPv4ExtSpec{
			Val:  ibv.IPv4ExtFilter{DstIP: [4]byte{192, 0, 2, 0}, Proto: 17, TOS: 4},
			Mask: ibv.IPv4ExtFilter{DstIP: [4]byte{255, 255, 255, 0}, Proto: 0xff, TOS: 0xff},
		},
		ibv.UDPSpec{Val: ibv.TCPUDPFilter{SrcPort: 9, DstPort: 4789}, Mask: ibv.TCPUDPFilter{SrcPort: 0xffff, DstPort: 0xffff}},
		ibv.VXLANSpec{Val: ibv.TunnelFilter{TunnelID: 5}, Mask: ibv.TunnelFilter{TunnelID: 0xffffff}},
		ibv.EthSpec{Inner: true, Val: ibv.EthFilter{DstMAC: [6]byte{2, 0, 0, 0, 0, 2}}, Mask: ibv.EthFilter{DstMAC: all}},
		ibv.IPv6Spec{
			Inner: true,
			Val:   ibv.IPv6Filter{FlowLabel: 7, NextHdr: 6},
			Mask:  ibv.IPv6Filter{FlowLabel: 0xfffff, NextHdr: 0xff},
		},
		ibv.TCPSpec{Inner: true, Val: ibv.TCPUDPFilter{DstPort: 80}, Mask: ibv.TCPUDPFilter{DstPort: 0xffff}},
	}
	if diff := cmp.Diff(want, verbsSpecs(rules[0])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The flow has fields that verbs cannot match, such as tags.
func TestDevXParamsHaveEveryFieldOfAFlow(t *testing.T) {
	m := flow.MustParse("m", "vlan id 100 pcp 3 vlan dei 1 ipv4 src 10.0.0.1 frag no tos 6 gre key 9 inner eth ipv6 label 7 udp dport 53").Match
	rules, err := ruleMatches(m, withDevX)
	if err != nil {
		t.Fatal(err)
	}
	val, mask := devxParam(rules[1]) // a C-tag, then an S-tag
	wantVal := ibv.MatchParam{
		Outer: ibv.MatchHeaders{CVLANTag: 1, FirstVID: 100, FirstPrio: 3, IPVersion: 4, IPProtocol: 47, DSCP: 1, ECN: 2,
			SrcIP: [16]byte{12: 10, 15: 1}},
		Inner: ibv.MatchHeaders{IPVersion: 6, IPProtocol: 17, UDPDPort: 53},
		Misc: ibv.MatchMisc{OuterSecondSVLANTag: 1, OuterSecondCFI: 1, GREKPresent: 1, GREKey: 9, GREProtocol: 0x6558,
			InnerIPv6FlowLabel: 7},
	}
	wantMask := ibv.MatchParam{
		Outer: ibv.MatchHeaders{CVLANTag: 1, FirstVID: 0xfff, FirstPrio: 7, IPVersion: 0xf, IPProtocol: 0xff, DSCP: 0x3f, ECN: 3, Frag: 1,
			SrcIP: [16]byte{12: 0xff, 0xff, 0xff, 0xff}},
		Inner: ibv.MatchHeaders{IPVersion: 0xf, IPProtocol: 0xff, UDPDPort: 0xffff},
		Misc: ibv.MatchMisc{OuterSecondSVLANTag: 1, OuterSecondCFI: 1, GREKPresent: 1, GREKey: 0xffffffff, GREProtocol: 0xffff,
			InnerIPv6FlowLabel: 0xfffff},
	}
	if diff := cmp.Diff(wantVal, val); diff != "" {
		t.Errorf("value (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantMask, mask); diff != "" {
		t.Errorf("mask (-want +got):\n%s", diff)
	}
	rules, err = ruleMatches(flow.MustParse("m", "untagged").Match, withDevX)
	if err != nil || len(rules) != 1 {
		t.Fatalf("untagged: %d rules, %v", len(rules), err)
	}
	val, mask = devxParam(rules[0])
	if diff := cmp.Diff(ibv.MatchParam{Outer: ibv.MatchHeaders{CVLANTag: 1}}, mask); diff != "" || val != (ibv.MatchParam{}) {
		t.Errorf("untagged: value %+v, mask (-want +got):\n%s", val, diff)
	}
}
