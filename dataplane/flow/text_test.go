package flow_test

import (
	"encoding"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
)

func number[T uint8 | uint16 | uint32](value, mask T) flow.Masked[T] {
	return flow.Masked[T]{Value: value, Mask: mask}
}

var (
	all4 = [4]byte{255, 255, 255, 255}
	all6 = [6]byte{255, 255, 255, 255, 255, 255}
)

func TestParseMatchReadsAndWritesEveryClause(t *testing.T) {
	for _, c := range []struct {
		text  string
		canon string // as text when empty
		want  flow.Match
	}{
		{text: "any"},
		{text: "arp", want: flow.Match{ARP: &flow.ARP{}}},
		{text: "arp op request sender 10.0.0.0/8 target 192.0.2.1", canon: "arp op 1 sender 10.0.0.0/8 target 192.0.2.1", want: flow.Match{ARP: &flow.ARP{
			Op: number[uint16](1, 0xffff), Sender: flow.Addr4{Addr: [4]byte{10}, Mask: [4]byte{255}}, Target: flow.Addr4{Addr: [4]byte{192, 0, 2, 1}, Mask: all4},
		}}},
		{text: "incomplete arp vlan", canon: "vlan arp incomplete", want: flow.Match{VLAN: []flow.VLAN{{}}, ARP: &flow.ARP{}, Incomplete: true}},
		{text: "sctp", want: flow.Match{SCTP: &flow.SCTP{}}},
		{text: "ipv6 sctp vtag 7 dport diameter sport 1-9", canon: "ipv6 sctp sport 1-9 dport 3868 vtag 0x00000007", want: flow.Match{IPv6: &flow.IPv6{}, SCTP: &flow.SCTP{
			Ports: flow.Ports{Src: flow.Port{Value: 1, Last: 9}, Dst: flow.Port{Value: 3868, Mask: 0xffff}}, Tag: number[uint32](7, 0xffffffff),
		}}},
		{text: "ipv4 ah", want: flow.Match{IPv4: &flow.IPv4{}, AH: &flow.AH{}}},
		{text: "ipv4 ah spi 256", canon: "ipv4 ah spi 0x00000100", want: flow.Match{IPv4: &flow.IPv4{}, AH: &flow.AH{SPI: number[uint32](256, 0xffffffff)}}},
		{text: "ipv4 dscp ef", canon: "ipv4 dscp 46", want: flow.Match{IPv4: &flow.IPv4{TOS: number[uint8](0xb8, 0xfc)}}},
		{text: "ipv6 ecn ce", canon: "ipv6 ecn 3", want: flow.Match{IPv6: &flow.IPv6{TrafficClass: number[uint8](3, 3)}}},
		{text: "ipv4 ecn ect0 dscp 46", canon: "ipv4 tos 0xba", want: flow.Match{IPv4: &flow.IPv4{TOS: number[uint8](0xba, 0xff)}}},
		{text: "ipv6 dscp 0x20/0x38", canon: "ipv6 tclass 0x80/0xe0", want: flow.Match{IPv6: &flow.IPv6{TrafficClass: number[uint8](0x80, 0xe0)}}},
		{text: "ipv4 dscp 0 ttl 1", want: flow.Match{IPv4: &flow.IPv4{TOS: number[uint8](0, 0xfc), TTL: number[uint8](1, 0xff)}}},
		{text: "tcp dport https", canon: "tcp dport 443", want: flow.Match{TCP: &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 443, Mask: 0xffff}}}}},
		{text: "tcp dport ssh-https sport netbios-ns-netbios-ssn", canon: "tcp sport 137-139 dport 22-443", want: flow.Match{TCP: &flow.TCP{Ports: flow.Ports{
			Src: flow.Port{Value: 137, Last: 139}, Dst: flow.Port{Value: 22, Last: 443},
		}}}},
		{text: "udp dport vxlan", canon: "udp dport 4789", want: flow.Match{UDP: &flow.Ports{Dst: flow.Port{Value: 4789, Mask: 0xffff}}}},
		{text: "udp dport 0-domain", canon: "udp dport 0-53", want: flow.Match{UDP: &flow.Ports{Dst: flow.Port{Last: 53}}}},
		{text: "ipv4 proto gre", canon: "ipv4 proto 47", want: flow.Match{IPv4: &flow.IPv4{Proto: number[uint8](47, 255)}}},
		{text: "ipv4 proto ipv6 ttl 1", canon: "ipv4 proto 41 ttl 1", want: flow.Match{IPv4: &flow.IPv4{Proto: number[uint8](41, 255), TTL: number[uint8](1, 255)}}},
		{text: "ipv6 nexthdr mobility-header", canon: "ipv6 nexthdr 135", want: flow.Match{IPv6: &flow.IPv6{NextHeader: number[uint8](135, 255)}}},
		{text: "eth type arp", canon: "eth type 0x0806", want: flow.Match{Eth: &flow.Eth{Type: number[uint16](0x0806, 0xffff)}}},
		{text: "icmp type echo-request ipv4", canon: "ipv4 icmp type 8", want: flow.Match{IPv4: &flow.IPv4{}, ICMP: &flow.ICMP{Type: number[uint8](8, 255)}}},
		{text: "ipv6 icmp type echo-request", canon: "ipv6 icmp type 128", want: flow.Match{IPv6: &flow.IPv6{}, ICMP: &flow.ICMP{Type: number[uint8](128, 255)}}},
		{text: "ipv6 icmp type nd-neighbor-solicit", canon: "ipv6 icmp type 135", want: flow.Match{IPv6: &flow.IPv6{}, ICMP: &flow.ICMP{Type: number[uint8](135, 255)}}},
		{text: "eth type ipv6 icmp type echo-reply", canon: "eth type 0x86dd icmp type 129", want: flow.Match{
			Eth: &flow.Eth{Type: number[uint16](0x86dd, 0xffff)}, ICMP: &flow.ICMP{Type: number[uint8](129, 255)},
		}},
		{text: "ipv6 gre inner ipv4 icmp type echo-reply", canon: "ipv6 gre inner ipv4 icmp type 0", want: flow.Match{IPv6: &flow.IPv6{}, GRE: &flow.GRE{Inner: &flow.Match{
			IPv4: &flow.IPv4{}, ICMP: &flow.ICMP{Type: number[uint8](0, 255)},
		}}}},
		{text: "  any\n", canon: "any"},
		{text: "ipv4 src 10.0.0.0/8 dst 192.0.2.10 tcp dport 443", want: flow.Match{
			IPv4: &flow.IPv4{Src: flow.Addr4{Addr: [4]byte{10}, Mask: [4]byte{255}}, Dst: flow.Addr4{Addr: [4]byte{192, 0, 2, 10}, Mask: all4}},
			TCP:  &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 443, Mask: 0xffff}}},
		}},
		{text: "tcp dport 443 ipv4", canon: "ipv4 tcp dport 443", want: flow.Match{IPv4: &flow.IPv4{}, TCP: &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 443, Mask: 0xffff}}}}},
		{text: "eth", want: flow.Match{Eth: &flow.Eth{}}},
		{text: "eth src 02:00:00:00:00:00/ff:ff:ff:00:00:00 dst 02:00:00:00:00:01 type 0x88cc", want: flow.Match{Eth: &flow.Eth{
			Src: flow.MAC{Addr: [6]byte{2}, Mask: [6]byte{255, 255, 255}}, Dst: flow.MAC{Addr: [6]byte{2, 0, 0, 0, 0, 1}, Mask: all6}, Type: number[uint16](0x88cc, 0xffff),
		}}},
		{text: "eth type 35020", canon: "eth type 0x88cc", want: flow.Match{Eth: &flow.Eth{Type: number[uint16](0x88cc, 0xffff)}}},
		{text: "vlan id 100 vlan id 7 ipv6 udp", want: flow.Match{
			VLAN: []flow.VLAN{{ID: number[uint16](100, 0xfff)}, {ID: number[uint16](7, 0xfff)}}, IPv6: &flow.IPv6{}, UDP: &flow.Ports{},
		}},
		{text: "vlan vlan pcp 5 dei 1", want: flow.Match{VLAN: []flow.VLAN{{}, {PCP: number[uint8](5, 7), DEI: number[uint8](1, 1)}}}},
		{text: "vlan id 0x64/0xf64", canon: "vlan id 100/0xf64", want: flow.Match{VLAN: []flow.VLAN{{ID: number[uint16](0x64, 0xf64)}}}},
		{text: "ipv4 proto 47 tos 0x10/0xfc ttl 64 frag later", canon: "ipv4 proto 47 dscp 4 ttl 64 frag later", want: flow.Match{IPv4: &flow.IPv4{
			Proto: number[uint8](47, 255), TOS: number[uint8](0x10, 0xfc), TTL: number[uint8](64, 255), Fragment: flow.FragmentLater,
		}}},
		{text: "ipv4 src 0.0.0.0/0 frag any proto 0/0", canon: "ipv4", want: flow.Match{IPv4: &flow.IPv4{}}},
		{text: "ipv4 src 10.0.0.1/255.0.0.255", want: flow.Match{IPv4: &flow.IPv4{Src: flow.Addr4{Addr: [4]byte{10, 0, 0, 1}, Mask: [4]byte{255, 0, 0, 255}}}}},
		{text: "ipv4 src 10.0.0.0/255.0.0.0", canon: "ipv4 src 10.0.0.0/8", want: flow.Match{IPv4: &flow.IPv4{Src: flow.Addr4{Addr: [4]byte{10}, Mask: [4]byte{255}}}}},
		{text: "ipv6 src 2001:db8::/32 dst ::1/::ff label 0xabcde nexthdr 0 tclass 0x20 hoplimit 1", want: flow.Match{IPv6: &flow.IPv6{
			Src:       flow.Addr6{Addr: [16]byte{0x20, 1, 0x0d, 0xb8}, Mask: [16]byte{255, 255, 255, 255}},
			Dst:       flow.Addr6{Addr: [16]byte{15: 1}, Mask: [16]byte{15: 255}},
			FlowLabel: number[uint32](0xabcde, 0xfffff), NextHeader: number[uint8](0, 255), TrafficClass: number[uint8](0x20, 255), HopLimit: number[uint8](1, 255),
		}}},
		{text: "udp sport 0x35 dport 1000-2000", canon: "udp sport 53 dport 1000-2000", want: flow.Match{UDP: &flow.Ports{
			Src: flow.Port{Value: 53, Mask: 0xffff}, Dst: flow.Port{Value: 1000, Last: 2000},
		}}},
		{text: "tcp sport 0-65535 dport 1024/0xfc00", want: flow.Match{TCP: &flow.TCP{Ports: flow.Ports{Src: flow.Port{Last: 0xffff}, Dst: flow.Port{Value: 1024, Mask: 0xfc00}}}}},
		{text: "icmp type 8 code 0", want: flow.Match{ICMP: &flow.ICMP{Type: number[uint8](8, 255), Code: number[uint8](0, 255)}}},
		{text: "ipv4 dst 192.0.2.1 vxlan vni 5 inner ipv4 dst 10.0.0.1 tcp dport 80", want: flow.Match{
			IPv4: &flow.IPv4{Dst: flow.Addr4{Addr: [4]byte{192, 0, 2, 1}, Mask: all4}},
			VXLAN: &flow.VXLAN{VNI: number[uint32](5, 0xffffff), Inner: &flow.Match{
				IPv4: &flow.IPv4{Dst: flow.Addr4{Addr: [4]byte{10, 0, 0, 1}, Mask: all4}}, TCP: &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 80, Mask: 0xffff}}},
			}},
		}},
		{text: "vxlan vni 5 ipv4 ttl 9", canon: "ipv4 ttl 9 vxlan vni 5", want: flow.Match{IPv4: &flow.IPv4{TTL: number[uint8](9, 255)}, VXLAN: &flow.VXLAN{VNI: number[uint32](5, 0xffffff)}}},
		{text: "udp sport 7 vxlan inner any", want: flow.Match{UDP: &flow.Ports{Src: flow.Port{Value: 7, Mask: 0xffff}}, VXLAN: &flow.VXLAN{Inner: &flow.Match{}}}},
		{text: "gre key 7 inner ipv6", want: flow.Match{GRE: &flow.GRE{Key: number[uint32](7, 0xffffffff), Inner: &flow.Match{IPv6: &flow.IPv6{}}}}},
		{text: "gre key 4294967295", want: flow.Match{GRE: &flow.GRE{Key: number[uint32](0xffffffff, 0xffffffff)}}},
		{text: "vxlan", want: flow.Match{VXLAN: &flow.VXLAN{}}},
		{text: "ipip", want: flow.Match{IPIP: &flow.IPIP{}}},
		{text: "ipip inner any", want: flow.Match{IPIP: &flow.IPIP{Inner: &flow.Match{}}}},
		{text: "geneve vni 5 inner eth", want: flow.Match{Geneve: &flow.Geneve{VNI: number[uint32](5, 0xffffff), Inner: &flow.Match{Eth: &flow.Eth{}}}}},
		{text: "gtpu teid 4096 inner ipv6", canon: "gtpu teid 0x00001000 inner ipv6", want: flow.Match{GTPU: &flow.GTPU{TEID: number[uint32](0x1000, 0xffffffff), Inner: &flow.Match{IPv6: &flow.IPv6{}}}}},
		{text: "mplsudp label 16 bos 1 inner ipv4", want: flow.Match{MPLSUDP: &flow.MPLSUDP{
			MPLS: flow.MPLS{Label: number[uint32](16, 0xfffff), Bottom: number[uint8](1, 1)}, Inner: &flow.Match{IPv4: &flow.IPv4{}}}}},
		{text: "tcp flags syn/syn,ack", want: flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Value: flow.SYN, Mask: flow.SYN | flow.ACK}}}},
		{text: "tcp flags 0x2/0x12 dport 80", canon: "tcp dport 80 flags syn/syn,ack", want: flow.Match{TCP: &flow.TCP{
			Ports: flow.Ports{Dst: flow.Port{Value: 80, Mask: 0xffff}}, Flags: flow.Masked[flow.TCPFlags]{Value: flow.SYN, Mask: flow.SYN | flow.ACK},
		}}},
		{text: "tcp flags cwr,syn,ece", canon: "tcp flags syn,ece,cwr", want: flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Value: flow.SYN | flow.ECE | flow.CWR, Mask: 0xff}}}},
		{text: "tcp flags syn|ack/syn|ack|rst", canon: "tcp flags syn,ack/syn,rst,ack", want: flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Value: 0x12, Mask: 0x16}}}},
		{text: "tcp flags none/fin,syn,rst,psh,ack,urg", want: flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Mask: 0x3f}}}},
		{text: "tcp flags ae,ack", canon: "tcp flags ack,ae", want: flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Value: flow.AE | flow.ACK, Mask: 0x1ff}}}},
		{text: "tcp flags none/ae", want: flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Mask: flow.AE}}}},
		{text: "tcp flags 2/0xfff", canon: "tcp flags syn/0xfff", want: flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Value: flow.SYN, Mask: 0xfff}}}},
		{text: "tcp flags 0x400", want: flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Value: 0x400, Mask: 0x4ff}}}},
		{text: "tcp flags 0x802/0xf02", want: flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Value: 0x802, Mask: 0xf02}}}},
		{text: "tcp flags none", want: flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Mask: 0xff}}}},
		{text: "tcp flags none/none", canon: "tcp", want: flow.Match{TCP: &flow.TCP{}}},
		{text: "esp", want: flow.Match{ESP: &flow.ESP{}}},
		{text: "ipv6 esp spi 256", canon: "ipv6 esp spi 0x00000100", want: flow.Match{IPv6: &flow.IPv6{}, ESP: &flow.ESP{SPI: number[uint32](256, 0xffffffff)}}},
		{text: "mpls", want: flow.Match{MPLS: &flow.MPLS{}}},
		{text: "vlan id 7 mpls label 16 tc 5 bos 1 ttl 64", want: flow.Match{
			VLAN: []flow.VLAN{{ID: number[uint16](7, 0xfff)}},
			MPLS: &flow.MPLS{Label: number[uint32](16, 0xfffff), TC: number[uint8](5, 7), Bottom: number[uint8](1, 1), TTL: number[uint8](64, 255)},
		}},
		{text: "gre inner mpls label 3", want: flow.Match{GRE: &flow.GRE{Inner: &flow.Match{MPLS: &flow.MPLS{Label: number[uint32](3, 0xfffff)}}}}},
		{text: "tcp dport 80 incomplete", want: flow.Match{Incomplete: true, TCP: &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 80, Mask: 0xffff}}}}},
		{text: "untagged", want: flow.Match{Untagged: true}},
		{text: "udp untagged eth", canon: "eth untagged udp", want: flow.Match{Eth: &flow.Eth{}, Untagged: true, UDP: &flow.Ports{}}},
		{text: "ipv6 hoplimit 1 frag first udp", want: flow.Match{IPv6: &flow.IPv6{HopLimit: number[uint8](1, 255), Fragment: flow.FragmentFirst}, UDP: &flow.Ports{}}},
		{text: "ipv6 nexthdr 60 frag later", want: flow.Match{IPv6: &flow.IPv6{NextHeader: number[uint8](60, 255), Fragment: flow.FragmentLater}}},
		{text: "ipv6 frag any", canon: "ipv6", want: flow.Match{IPv6: &flow.IPv6{}}},
		{text: "incomplete", want: flow.Match{Incomplete: true}},
		{text: "incomplete udp ipv6", canon: "ipv6 udp incomplete", want: flow.Match{Incomplete: true, IPv6: &flow.IPv6{}, UDP: &flow.Ports{}}},
		{text: "vxlan inner incomplete", want: flow.Match{VXLAN: &flow.VXLAN{Inner: &flow.Match{Incomplete: true}}}},
	} {
		got, err := flow.ParseMatch(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
		canon := c.canon
		if canon == "" {
			canon = c.text
		}
		if got.String() != canon {
			t.Errorf("%q is written %q, want %q", c.text, got.String(), canon)
		}
	}
}

func TestParseMatchErrorsNameTheWordAndTheCure(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string // each error: "word@offset", then parts of it, split by |
	}{
		{"", []string{`@0|the match is empty|write "any"`}},
		{"tpc dport 80", []string{`tpc@0|expected a protocol|did you mean "tcp"?`}},
		{"incomplet", []string{`incomplet@0|did you mean "incomplete"?`}},
		{"incomplete id 7", []string{`id@11|expected a protocol|"id" is a field of vlan`}},
		{"incomplete incomplete", []string{`incomplete@11|a second incomplete clause`}},
		{"udp dport 53 incomplete", []string{`incomplete@13|is not there|make two flows of it`}},
		{"TCP", []string{`TCP@0|did you mean "tcp"?`}},
		{"ipv4 dprot 80", []string{`dprot@5|a field of ipv4 (src, dst, proto, tos, dscp, ecn, ttl or frag)|did you mean "proto"?`}},
		{"ipv4 dport 80", []string{`dport@5|"dport" is a field of tcp, udp or sctp: write that first, as "tcp dport"`}},
		{"dst 10.0.0.1", []string{`dst@0|did you mean "ipv4 dst 10.0.0.1"?`}},
		{"dst 2001:db8::/32", []string{`dst@0|did you mean "ipv6 dst 2001:db8::/32"?`}},
		{"host 10.0.0.1", []string{`host@0|did you mean "ipv4 src 10.0.0.1" or "ipv4 dst 10.0.0.1"?`}},
		{"net 2001:db8::/32", []string{`net@0|did you mean "ipv6 src 2001:db8::/32" or "ipv6 dst 2001:db8::/32"?`}},
		{"tcp 10.0.0.1", []string{`10.0.0.1@4|did you mean "ipv4 src 10.0.0.1" or "ipv4 dst 10.0.0.1"?`}},
		{"ipv4 and tcp dport 80", []string{`and@5|leave it out`}},
		{"ipv4 or tcp", []string{`or@5|write a flow for each`}},
		{"not tcp", []string{`not@0|a match excludes values of a field`}},
		{"ip", []string{`ip@0|did you mean "ipv4"?`}},
		{"ip6", []string{`ip6@0|did you mean "ipv6"?`}},
		{"tcp port 80", []string{`port@4|did you mean "dport 80" or "sport 80", of tcp or udp?`}},
		{"tcp src 80", []string{`src@4|did you mean "sport"?`}},
		{"tcp dport", []string{`@9|ends after "dport"|a port`}},
		{"ipv4 proto vxlan", []string{`vxlan@11|leave "proto" out`}},
		{"ipv4 proto tcp dport 80", []string{`dport@15|write that first, as "tcp dport"`}},
		{"ipv4 tos 4 dscp 1", []string{`dscp@11|"dscp" and "tos" have bits in common|leave one out`}},
		{"ipv6 ecn ce tclass 1/1", []string{`tclass@12|"tclass" and "ecn" have bits in common`}},
		{"ipv4 dscp 1 ecn 0 dscp 1", []string{`dscp@18|given twice`}},
		{"ipv4 dscp 64", []string{`64@10|does not fit in 6 bits|the most is 63`}},
		{"ipv4 dscp 3/1", []string{`3/1@10|bits outside its mask|did you mean 1/0x01?`}},
		{"ipv4 ecn 4", []string{`4@9|does not fit in 2 bits`}},
		{"icmp type echo-request", []string{`echo-request@10|type 8 over IPv4 and type 128 over IPv6|did you mean "ipv4 icmp type echo-request" or`}},
		{"icmp type source-quench", []string{`source-quench@10|type 4 of ICMP over IPv4 alone|did you mean "ipv4 icmp type source-quench"?`}}, // 4 is parameter-problem over IPv6
		{"icmp type nd-neighbor-solicit", []string{`nd-neighbor-solicit@10|type 135 of ICMPv6 alone|did you mean "ipv6 icmp type nd-neighbor-solicit"?`}},
		{"ipv6 icmp type source-quench", []string{`source-quench@15|ICMPv6 has no type of this name: it is 4 of ICMP over IPv4`}},
		{"ipv4 icmp type packet-too-big", []string{`packet-too-big@15|it is 2 of ICMPv6`}},
		{"tcp dport ssh-htttps", []string{`ssh-htttps@10|"htttps" is no number`}},
		{"tcp dport https-ssh", []string{`https-ssh@10|runs backwards|did you mean 22-443?`}},
		{"vlan id 4096", []string{`4096@8|does not fit in 12 bits|the most is 4095`}},
		{"vlan pcp 8 dei 2", []string{`8@9|does not fit in 3 bits`, `2@15|does not fit in 1 bits|the most is 1`}},
		{"ipv6 label 0x100000", []string{`0x100000@11|does not fit in 20 bits`}},
		{"vxlan vni 16777216", []string{`16777216@10|does not fit in 24 bits`}},
		{"gre key 4294967296", []string{`4294967296@8|does not fit in 32 bits`}},
		{"gre key 99999999999999999999999", []string{`99999999999999999999999@8|does not fit in 32 bits`}},
		{"vlan id 1/0x1fff", []string{`1/0x1fff@8|does not fit in 12 bits`}},
		{"ipv4 ttl 010", []string{`010@9|leading zero|write 10`}},
		{"ipv4 ttl 1_0", []string{`1_0@9|is no number`}},
		{"ipv4 ttl -1", []string{`-1@9|is no number`}},
		{"ipv4 ttl 0x", []string{`0x@9|is no number`}},
		{"ipv4 ttl ff", []string{`ff@9|is no number`}},
		{"ipv4 ttl 3/", []string{`3/@9|is no number`}},
		{"ipv4 src 10.0.0.1/8", []string{`10.0.0.1/8@9|bits outside its mask|did you mean 10.0.0.0/8?`}},
		{"ipv4 src 10.0.0.1/0", []string{`10.0.0.1/0@9|leave the field out`}},
		{"ipv4 src 10.0.0.0/33", []string{`10.0.0.0/33@9|no prefix length|write 0 to 32`}},
		{"ipv4 src 10.0.0.0/08", []string{`10.0.0.0/08@9|no prefix length`}},
		{"ipv4 src 10.0.0.0/", []string{`10.0.0.0/@9|is no IPv4 mask`}},
		{"ipv4 src 10.0.0.256", []string{`10.0.0.256@9|is no IPv4 address`}},
		{"ipv4 src fe80::1", []string{`fe80::1@9|did you mean the clause "ipv6"?`}},
		{"ipv6 src fe80::1%eth0", []string{`fe80::1%eth0@9|is no IPv6 address`}},
		{"ipv6 src 10.0.0.1", []string{`10.0.0.1@9|did you mean the clause "ipv4"?`}},
		{"eth dst 02:00:00:00:00", []string{`02:00:00:00:00@8|is no MAC address`}},
		{"eth dst 02:00:00:00:00:01/24", []string{`02:00:00:00:00:01/24@8|is no mask`}},
		{"udp dport 90-80", []string{`90-80@10|runs backwards|did you mean 80-90?`}},
		{"udp dport 1-65536", []string{`1-65536@10|does not fit in 16 bits`}},
		{"udp dport 1-0", []string{`1-0@10|did you mean 0-1?`}},
		{"udp dport 80/0xf", []string{`80/0xf@10|bits outside its mask`}},
		{"ipv4 frag fist", []string{`fist@10|did you mean "first"?`}},
		{"ipv4 src 1.2.3.4 src 1.2.3.5", []string{`src@17|: given twice`}},
		{"ipv4 ttl 1 ipv4 ttl 2", []string{`ipv4@11|a second ipv4 clause|"inner"`}},
		{"vlan vlan vlan", []string{`vlan@10|a third vlan clause`}},
		{"ipv4 ipv6", []string{`ipv6@5|ipv4 and ipv6 at once`}},
		{"tcp udp", []string{`udp@4|tcp and udp at once`}},
		{"icmp gre key 1", []string{`gre@5|icmp and gre at once`}},
		{"tcp vxlan", []string{`vxlan@4|tcp and vxlan at once`}},
		{"udp dport 53 vxlan", []string{`53@10|4789`}},
		{"ipv4 proto 6 udp", []string{`6@11|udp is protocol 17`}},
		{"ipv6 nexthdr 6 vxlan", []string{`6@13|neither vxlan`}},
		{"ipv4 frag later tcp dport 80", []string{`later@10|a later fragment`}},
		{"ipv6 frag later tcp dport 80", []string{`later@10|a later fragment`}},
		{"ipv6 nexthdr 17 frag yes", []string{`yes@21|no extension header has the number`}},
		{"ipv6 frag no nexthdr 17 frag no", []string{`frag@24|: given twice`}},
		{"tcp flags sym", []string{`sym@10|is no TCP flag|flags or flags/mask (syn/syn,ack)|did you mean "syn"?`}},
		{"tcp flags syn,", []string{`syn,@10|is no TCP flag`}},
		{"tcp flags syn,,ack", []string{`syn,,ack@10|"" is no TCP flag`}},
		{"tcp flags SYN", []string{`SYN@10|is no TCP flag|did you mean "syn"?`}},
		{"tcp flags syn,ack/syn", []string{`syn,ack/syn@10|flags outside its mask|did you mean syn/syn,ack?`}},
		{"tcp flags syn/ack", []string{`syn/ack@10|flags outside its mask|did you mean none/ack?`}},
		{"tcp flags 0x1000", []string{`0x1000@10|does not fit in 12 bits`}},
		{"tcp flags", []string{`@9|ends after "flags"|flags or flags/mask`}},
		{"tcp syn", []string{`syn@4|did you mean "flags syn/syn"?`}},
		{"udp flags syn", []string{`flags@4|"flags" is a field of tcp: write that first, as "tcp flags"`}},
		{"tcp flags syn incomplete", []string{`incomplete@14|is not there`}},
		{"ipv4 frag later tcp flags syn/syn", []string{`later@10|a later fragment`}},
		{"esp spi 4294967296", []string{`4294967296@8|does not fit in 32 bits`}},
		{"esp spi 7 incomplete", []string{`incomplete@10|is not there`}},
		{"esp tcp", []string{`esp@0|tcp and esp at once`}},
		{"ipv4 proto 51 esp", []string{`51@11|esp is protocol 50`}},
		{"ipv4 frag later esp spi 1", []string{`later@10|a later fragment`}},
		{"ah spi 1", []string{`ah@0|behind IPv4 alone|write "ipv4 ah"`}},
		{"ipv6 ah spi 1", []string{`ah@5|an extension header|write "ipv6 nexthdr ah"`}},
		{"ipv4 frag later ah spi 1", []string{`later@10|a later fragment`}},
		{"ipv4 ah spi 7 incomplete", []string{`incomplete@14|is not there`}},
		{"ipv4 proto 50 ah", []string{`50@11|ah is protocol 51`}},
		{"sctp tcp", []string{`sctp@0|tcp and sctp at once`}},
		{"sctp vtag 4294967296", []string{`4294967296@10|does not fit in 32 bits`}},
		{"sctp src 80", []string{`src@5|did you mean "sport"?`}},
		{"ipv6 frag later sctp vtag 1", []string{`later@10|a later fragment`}},
		{"arp ipv4", []string{`arp@0|arp, and for another protocol above Ethernet|make two flows of it`}},
		{"arp mpls", []string{`arp@0|arp, and for another protocol`}},
		{"eth type ipv4 arp", []string{`ipv4@9|is not the type`}},
		{"arp op 1 incomplete", []string{`incomplete@9|is not there`}},
		{"arp op replay", []string{`replay@7|is no number|did you mean "reply"?`}},
		{"arp src 10.0.0.1", []string{`src@4|did you mean "sender 10.0.0.1"?`}},
		{"mpls label 1048576", []string{`1048576@11|does not fit in 20 bits`}},
		{"mpls ipv4", []string{`mpls@0|headers behind an MPLS label are not looked at`}},
		{"mpls label 16 tcp dport 80", []string{`mpls@0|headers behind an MPLS label are not looked at`}},
		{"mpls incomplete", []string{`incomplete@5|is not there`}},
		{"eth type 0x0800 mpls", []string{`0x0800@9|is not the type`}},
		{"vlan id 1 untagged", []string{`untagged@10|a VLAN tag and for none|make two flows of it`}},
		{"untaged", []string{`untaged@0|did you mean "untagged"?`}},
		{"vlan none", []string{`none@5|did you mean "untagged"?`}},
		{"untagged id 7", []string{`id@9|"id" is a field of vlan`}},
		{"eth type 0x0806 ipv4", []string{`0x0806@9|is not the type`}},
		{"eth type 0x0806 udp", []string{`0x0806@9|is not the type`}},
		{"esp spi -1", []string{`-1@8|is no number`}},
		{"inner", []string{`inner@0|follows the fields of vxlan, gre, ipip, geneve, gtpu or mplsudp`}},
		{"ipip inner eth", []string{`inner@5|only IP is looked for inside ipip`}},
		{"ipip inner ipip", []string{`ipip@11|inside a tunnel`}},
		{"ipip ipv4 inner ipv6", []string{`inner@10|once`}},
		{"ipv4 proto 6 ipip", []string{`6@11|ipip is protocol 4 or 41`}},
		{"udp dport 53 gtpu", []string{`53@10|gtpu is looked for at destination port 2152`}},
		{"geneve vni 16777216", []string{`16777216@11|does not fit in 24 bits`}},
		{"gre inner", []string{`@9|ends after "inner"|write "inner any"`}},
		{"vxlan inner gre", []string{`gre@12|inside a tunnel`}},
		{"vxlan inner ipv4 inner ipv6", []string{`inner@17|once`}},
		{"vxlan inner vlan id 1 ipv4 proto 6 udp", []string{`6@33|udp is protocol 17`}},
		{"ipv4 src 10.0.0.1/8 ipv6 tcp dprot 80", []string{`10.0.0.1/8@9|did you mean 10.0.0.0/8?`, `ipv6@20|at once`, `dprot@29|did you mean "dport"?`}},
		{"any tcp", []string{`any@0|stands alone`}},
		{"vxlan inner any tcp", []string{`any@12|stands alone`}},
		{"ipv4 src 1.2.3 frob 7 tcp dport x", []string{`1.2.3@9|no IPv4`, `frob@15|expected a field of ipv4`, `x@32|is no number`}},
	} {
		t.Run(c.text, func(t *testing.T) {
			m, err := flow.ParseMatch(c.text)
			var errs flow.ParseErrors
			if !errors.As(err, &errs) {
				t.Fatalf("match %v, error %v, want ParseErrors", m, err)
			}
			if !errors.Is(err, flow.ErrInvalid) {
				t.Error("the error does not satisfy ErrInvalid")
			}
			if len(errs) != len(c.want) {
				t.Fatalf("%d errors, want %d:\n%v", len(errs), len(c.want), err)
			}
			for i, e := range errs {
				parts := strings.Split(c.want[i], "|")
				word, _, _ := strings.Cut(parts[0], "@")
				if got := e.Word + "@" + itoa(e.Offset); got != parts[0] {
					t.Errorf("error %d stands at %s, want %s", i, got, parts[0])
				}
				if word != "" && c.text[e.Offset:e.Offset+len(word)] != word {
					t.Errorf("offset %d is not that of %q", e.Offset, word)
				}
				for _, part := range parts[1:] {
					if !strings.Contains(e.Error(), part) {
						t.Errorf("error %q does not say %q", e, part)
					}
				}
			}
		})
	}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

// A hopeless text gives fewer errors than it has words.
func TestParseMatchBoundsItsReport(t *testing.T) {
	_, err := flow.ParseMatch(strings.Repeat("frob ", 10_000) + strings.Repeat("x", 100_000))
	var errs flow.ParseErrors
	if !errors.As(err, &errs) || len(errs) > 20 || len(err.Error()) > 10_000 {
		t.Errorf("%d errors, %d bytes", len(errs), len(err.Error()))
	}
}

func TestWordsOfFieldsRoundTripAsText(t *testing.T) {
	for _, c := range []struct {
		word string
		make func() encoding.TextUnmarshaler
		want encoding.TextMarshaler
	}{
		{"ingress", func() encoding.TextUnmarshaler { return new(flow.Direction) }, flow.Ingress},
		{"egress", func() encoding.TextUnmarshaler { return new(flow.Direction) }, flow.Egress},
		{"count", func() encoding.TextUnmarshaler { return new(flow.Action) }, flow.Count},
		{"drop", func() encoding.TextUnmarshaler { return new(flow.Action) }, flow.Drop},
		{"any", func() encoding.TextUnmarshaler { return new(flow.Fragment) }, flow.FragmentAny},
		{"later", func() encoding.TextUnmarshaler { return new(flow.Fragment) }, flow.FragmentLater},
	} {
		text, err := c.want.MarshalText()
		if err != nil || string(text) != c.word {
			t.Errorf("%v is written %q (%v), want %q", c.want, text, err, c.word)
		}
		v := c.make()
		if err := v.UnmarshalText([]byte(c.word)); err != nil {
			t.Error(err)
		}
		if got, _ := v.(encoding.TextMarshaler).MarshalText(); string(got) != c.word {
			t.Errorf("%q is read as %s", c.word, got)
		}
		err = c.make().UnmarshalText([]byte(c.word[:len(c.word)-1] + "x"))
		if !errors.Is(err, flow.ErrInvalid) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("error %v does not propose %q", err, c.word)
		}
	}
	for _, bad := range []encoding.TextMarshaler{flow.Direction(2), flow.Action(9), flow.Fragment(5), flow.Match{IPv4: &flow.IPv4{}, IPv6: &flow.IPv6{}}} {
		if text, err := bad.MarshalText(); !errors.Is(err, flow.ErrInvalid) {
			t.Errorf("%#v is written %q, error %v", bad, text, err)
		}
	}
	m := flow.Match{TCP: &flow.TCP{}}
	if err := m.UnmarshalText([]byte("nonsense")); err == nil || m.TCP == nil {
		t.Error("a match that cannot be read changed its receiver, or was no error")
	}
}

func checkRoundTrip(t *rapid.T) {
	m := drawMatch(t)
	text, err := m.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var back flow.Match
	if err := back.UnmarshalText(text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if diff := cmp.Diff(m, back); diff != "" {
		t.Fatalf("%s (-drawn +read):\n%s", text, diff)
	}
}

func TestPrintedMatchParsesToAnEqualOne(t *testing.T) { rapid.Check(t, checkRoundTrip) }

func FuzzRoundTrip(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkRoundTrip)) }

// No input panics. An accepted text validates and is written in a form that reads back as the same
// match and is written the same again. The errors of a refused text have places that are in the
// text.
func FuzzParseMatch(f *testing.F) {
	for _, text := range []string{
		"any", "ipv4 src 10.0.0.0/8 dst 192.0.2.10 tcp dport 443", "vlan id 100 vlan id 7 ipv6 udp", "udp dport 1000-2000",
		"vxlan vni 5 inner eth src 02:00:00:00:00:00/ff:00:00:00:00:00 icmp type 8", "gre key 7/0xff inner any",
		"ipv6 ipip inner ipv4 udp dport 1-9", "udp sport 7 geneve vni 5/0xff inner vlan id 9", "gtpu teid 0x1000 inner ipv6", "mplsudp label 16 bos 1 inner any",
		"ipv6 src ::1/::ff label 0x1 nexthdr 0 tclass 1/1 hoplimit 3", "ipv4 frag any proto 47", "inner inner", "ipv4 src src",
		"tcp dport != 80", "tcp dport { 80, 443 } udp", "tcp flags {syn, syn|ack} dport 1-2,!={", "ipv4 src 10.0.0.5-10.0.0.9 ttl != 3-5", "vlan id {1,0/1,}", "udp sport 7-7", "ipv4 dscp ef arp op 1 tcp", "dport!=80 tcp dport>=65535 sport <0", "ipv4 src @a dst != @b.c", "ipv6 src {@a, ::1} gre inner ipv4 dst @",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := flow.ParseMatch(text)
		if err != nil {
			var errs flow.ParseErrors
			if !errors.As(err, &errs) || len(errs) == 0 {
				t.Fatalf("error %T %v", err, err)
			}
			for _, e := range errs {
				if e.Offset < 0 || e.Offset+len(e.Word) > len(text) || text[e.Offset:e.Offset+len(e.Word)] != e.Word || e.Error() == "" || e.Message == "" {
					t.Fatalf("%q: error %#v", text, e)
				}
			}
			return
		}
		if err := m.Validate(); err != nil {
			t.Fatalf("%q is accepted: %v", text, err)
		}
		canon := m.String()
		again, err := flow.ParseMatch(canon)
		if err != nil {
			t.Fatalf("%q is written %q: %v", text, canon, err)
		}
		if diff := cmp.Diff(m, again); diff != "" || !m.Equal(again) || again.String() != canon {
			t.Fatalf("%q is written %q, then %q\n%s", text, canon, again, diff)
		}
	})
}
