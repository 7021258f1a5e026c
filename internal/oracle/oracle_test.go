package oracle_test

import (
	"bytes"
	"encoding/hex"
	"net"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

func eth(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: t}
}

func ip4(proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TOS: 0x12, TTL: 64, Protocol: proto, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{192, 0, 2, 10}}
}

func ip6(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, TrafficClass: 0x34, FlowLabel: 0xabcde, HopLimit: 63, NextHeader: next, SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::2")}
}

func udp(src, dst layers.UDPPort) *layers.UDP { return &layers.UDP{SrcPort: src, DstPort: dst} }

func tcp(src, dst layers.TCPPort) *layers.TCP { return &layers.TCP{SrcPort: src, DstPort: dst} }

func tag(id uint16, prio uint8, next layers.EthernetType) *layers.Dot1Q {
	return &layers.Dot1Q{VLANIdentifier: id, Priority: prio, Type: next}
}

func raw(b ...byte) gopacket.Payload { return b }

func build(t *testing.T, stack ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, stack...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// fragment4 returns the IPv4 header of a fragment.
func fragment4(proto layers.IPProtocol, more bool, offset uint16) *layers.IPv4 {
	ip := ip4(proto)
	ip.FragOffset = offset
	if more {
		ip.Flags = layers.IPv4MoreFragments
	}
	return ip
}

const (
	tIPv4, tIPv6, tTag, tQinQ = layers.EthernetTypeIPv4, layers.EthernetTypeIPv6, layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ
	tARP                      = layers.EthernetTypeARP
	pTCP, pUDP, pGRE          = layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolGRE
)

// options adds bytes of options to an IPv4 header.
func options(ip *layers.IPv4, bytes int) *layers.IPv4 {
	for range bytes {
		ip.Options = append(ip.Options, layers.IPv4Option{OptionType: 1})
	}
	return ip
}

// hbh returns n hop-by-hop headers of 8 bytes. The last one announces next.
func hbh(n int, next byte) gopacket.Payload {
	b := bytes.Repeat([]byte{0, 0, 1, 4, 0, 0, 0, 0}, n)
	b[len(b)-8] = next
	return b
}

func TestMatchSelectsThePacketsOfTheDocument(t *testing.T) {
	arp := raw(make([]byte, 46)...)
	http4 := build(t, eth(tIPv4), ip4(pTCP), tcp(40000, 443), raw(1, 2, 3))
	synECN := build(t, eth(tIPv4), ip4(pTCP), &layers.TCP{SrcPort: 40000, DstPort: 443, SYN: true, ECE: true, CWR: true, NS: true})
	synAE := bytes.Clone(synECN)
	synAE[14+20+12] |= 4
	tiny := build(t, eth(tIPv4), fragment4(pTCP, true, 0), raw(0, 1, 443>>8, 443&255, 0, 0, 0, 0))
	esp4 := build(t, eth(tIPv4), ip4(50), raw(0x12, 0x34, 0x56, 0x78, 0, 0, 0, 1, 9, 9))
	request := build(t, eth(tARP), raw(0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 10))
	ieee := bytes.Clone(request)
	ieee[14+1] = 6 // Linux answers such a request
	chaos := bytes.Clone(request)
	chaos[14+3] = 4
	sctp := build(t, eth(tIPv4), ip4(132), raw(0x9c, 0x40, 0x0f, 0x1c, 1, 2, 3, 4, 0, 0, 0, 0))
	ah4 := build(t, eth(tIPv4), ip4(51), raw(6, 4, 0, 0, 0x12, 0x34, 0x56, 0x78), make(gopacket.Payload, 16), tcp(1, 80))
	labels := build(t, eth(0x8847), raw(0, 1, 0x0a, 64, 0, 2, 1, 64), ip4(pTCP), tcp(1, 2))
	vxlan := build(t, eth(tIPv4), ip4(pUDP), udp(5555, 4789), &layers.VXLAN{ValidIDFlag: true, VNI: 5},
		eth(tTag), tag(7, 0, tIPv4), ip4(pTCP), tcp(1, 80), raw(0))
	noI := bytes.Clone(vxlan)
	noI[14+20+8] &^= 0x08
	greKey := build(t, eth(tIPv4), ip4(pGRE), &layers.GRE{Protocol: tIPv6, KeyPresent: true, Key: 7}, ip6(pUDP), udp(1, 53), raw(0))
	greAll := build(t, eth(tIPv4), ip4(pGRE), &layers.GRE{Protocol: tIPv4, ChecksumPresent: true, KeyPresent: true, SeqPresent: true, Key: 9, Seq: 3}, ip4(pTCP), tcp(1, 80))
	greEth := build(t, eth(tIPv6), ip6(pGRE), &layers.GRE{Protocol: layers.EthernetTypeTransparentEthernetBridging}, eth(tIPv4), ip4(1), raw(8, 0, 0, 0))
	grePPTP := build(t, eth(tIPv4), ip4(pGRE), raw(0x30, 0x01, 0x88, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0))
	greRouting := build(t, eth(tIPv4), ip4(pGRE), raw(0x40, 0x00, 0x08, 0x00), make(gopacket.Payload, 60))
	opts := build(t, eth(tIPv4), options(ip4(pUDP), 40), udp(1, 53), raw(0))
	badIHL := bytes.Clone(http4)
	badIHL[14] = 0x44
	badVersion := bytes.Clone(http4)
	badVersion[14] = 0x65
	qinq := build(t, eth(tQinQ), tag(100, 5, tTag), tag(7, 0, tIPv6), ip6(pUDP), udp(1, 2), raw(0))
	triple := build(t, eth(tQinQ), tag(1, 0, tTag), tag(2, 0, tTag), tag(3, 0, tIPv4), ip4(pTCP), tcp(1, 2))
	icmp4 := build(t, eth(tIPv4), ip4(1), raw(8, 3))
	icmp6 := build(t, eth(tIPv6), ip6(58), raw(128, 0))
	first := build(t, eth(tIPv4), fragment4(pUDP, true, 0), udp(1, 53), raw(0))
	later := build(t, eth(tIPv4), fragment4(pUDP, false, 185), raw(0, 1, 0, 53, 0, 9, 0, 0))
	frag6 := func(next byte, offset uint16) []byte {
		return build(t, eth(tIPv6), ip6(44), raw(next, 0, byte(offset>>5), byte(offset<<3)|1, 0, 0, 0, 1), udp(1, 53), raw(0))
	}
	tcp6 := build(t, eth(tIPv6), ip6(44), raw(6, 0, 0, 1, 0, 0, 0, 1), tcp(1, 443))
	tiny6 := build(t, eth(tIPv6), ip6(44), raw(6, 0, 0, 1, 0, 0, 0, 1), raw(0, 1, 443>>8, 443&255, 0, 0, 0, 0))
	tiny6 = append(tiny6, make([]byte, 14)...) // bytes behind the packet, as of padding
	atomic := frag6(17, 0)
	atomic[14+40+3] &^= 1
	chain := func(n int) []byte { return build(t, eth(tIPv6), ip6(0), hbh(n, 17), udp(1, 53), raw(0)) }
	ah := build(t, eth(tIPv6), ip6(51), raw(6, 4), make(gopacket.Payload, 22), tcp(1, 80))

	for _, c := range []struct {
		name  string
		frame []byte
		yes   string // matches, separated by ";"
		no    string
	}{
		{"tcp over ipv4", http4,
			"any; eth; untagged; untagged tcp; eth src 02:00:00:00:00:01 dst 02:00:00:00:00:02 type 0x0800; ipv4; ipv4 src 10.0.0.0/8; ipv4 dst 192.0.2.10 tcp dport 443; ipv4 proto 6 tos 0x10/0xf0 ttl 64 frag no; tcp; tcp sport 40000 dport 443; tcp dport 400-500; tcp dport 443-444; tcp dport 442-443; tcp dport 0-65535; tcp dport 0x1bb/0xffff",
			"vlan; ipv6; udp; icmp; gre; vxlan; eth src 02:00:00:00:00:02; ipv4 dst 192.0.2.11; ipv4 tos 0x13; ipv4 frag yes; ipv4 frag first; ipv4 frag later; tcp dport 444-500; tcp dport 1-442; tcp sport 443; incomplete"},
		{"not IP", build(t, eth(0x0806), arp), "any; eth type 0x0806", "ipv4; ipv6; tcp; udp; icmp; vlan; incomplete"},
		{"shorter than Ethernet", make([]byte, 13), "any; incomplete", "eth; ipv4; untagged"},
		{"Ethernet alone", append(append(bytes.Clone(macB), macA...), 8, 0), "eth type 0x0800; incomplete; eth incomplete", "ipv4; vlan; ipv4 incomplete"},
		{"ipv4 cut by a byte", http4[:14+19], "eth type 0x0800; incomplete", "ipv4; tcp"},
		{"ipv4 whole, nothing behind", http4[:14+20], "ipv4; tcp; tcp incomplete; ipv4 incomplete", "tcp dport 443; tcp dport 0-65535; udp incomplete"},
		{"three bytes of tcp", http4[:14+20+3], "tcp; ipv4 proto 6; incomplete", "tcp sport 40000; tcp dport 0x8000/0x8000"},
		{"four bytes of tcp", http4[:14+20+4], "tcp sport 40000 dport 443; incomplete; tcp dport 443 incomplete", "udp; tcp flags none; tcp flags none/syn; tcp dport 444 incomplete"},
		{"thirteen bytes of tcp", http4[:14+20+13], "tcp dport 443 incomplete", "tcp flags none/syn"},
		{"fourteen bytes of tcp", http4[:14+20+14], "tcp dport 443; tcp flags none; tcp dport 443 flags none/syn,ack", "incomplete; tcp flags syn"},
		{"a SYN with ECN", synECN, "tcp flags syn/syn,ack; tcp flags syn/fin,syn,rst,ack; tcp flags syn,ece,cwr; tcp dport 443 flags 0xc2; tcp flags syn/syn; tcp flags cwr/cwr", "tcp flags syn; tcp flags syn,ack/syn,ack; tcp flags ack/ack; tcp flags none; tcp dport 80 flags syn/syn"},
		{"a SYN with accurate ECN and a reserved bit", synAE, "tcp flags syn,ece,cwr; tcp flags ae/ae; tcp flags 0x5c2; tcp flags none/0x200; tcp flags 0x400/0x400", "tcp flags syn,ece,cwr/0xfff; tcp flags none/ae; tcp flags syn,ece,cwr,ae/0xfff; tcp flags 0x200/0x200"},
		{"ports of a first fragment, flags in the next one", tiny, "ipv4 frag first tcp dport 443; incomplete", "tcp flags syn/syn; tcp flags none/ack"},
		{"the same over ipv6", tiny6, "ipv6 frag first tcp dport 443; incomplete", "tcp flags syn/syn; tcp flags none/ack"},
		{"a first fragment with its flags", build(t, eth(tIPv4), fragment4(pTCP, true, 0), tcp(1, 443), raw(0, 0, 0, 0)), "ipv4 frag first tcp dport 443 flags none", "incomplete"},
		{"a first fragment of ipv6 with its flags", tcp6, "ipv6 frag first tcp dport 443 flags none", "incomplete"},
		{"flags in a later fragment", build(t, eth(tIPv4), fragment4(pTCP, false, 1), raw(0, 0, 0, 0, 0x50, 0x02, 0, 0)), "tcp", "tcp flags syn/syn; incomplete"},
		{"esp", esp4, "esp; esp spi 0x12345678; esp spi 0x12000000/0xff000000; ipv4 proto 50 esp", "esp spi 0x12345679; tcp; udp; icmp; ipv6 esp; incomplete"},
		{"three bytes of esp", esp4[:14+20+3], "esp; esp incomplete", "esp spi 0x12345678; esp spi 0/1"},
		{"four bytes of esp", esp4[:14+20+4], "esp spi 0x12345678", "incomplete"},
		{"esp behind extension headers", build(t, eth(tIPv6), ip6(0), hbh(2, 50), raw(0, 0, 1, 0, 0, 0, 0, 1)), "esp spi 256; ipv6 nexthdr 0 esp", "ipv4 esp; incomplete"},
		{"later fragment of esp", build(t, eth(tIPv4), fragment4(50, false, 9), raw(0, 0, 1, 0, 0, 0, 0, 1)), "esp", "esp spi 256; incomplete"},
		{"esp in vxlan", build(t, eth(tIPv4), ip4(pUDP), udp(1, 4789), &layers.VXLAN{ValidIDFlag: true, VNI: 5}, eth(tIPv4), ip4(50), raw(0, 0, 1, 0)), "vxlan inner esp spi 256", "esp"},
		{"arp", request,
			"arp; arp op 1; arp op request sender 10.0.0.0/8 target 192.0.2.10; arp sender 0.0.0.1/0.0.0.255; eth type 0x0806 arp; untagged arp; eth src 02:00:00:00:00:01 arp op 1",
			"arp op 2; arp sender 10.0.0.2; arp target 10.0.0.1; ipv4; tcp; vlan; incomplete"},
		{"arp with padding behind a tag", build(t, eth(tTag), tag(7, 0, tARP), raw(request[14:]...), make(gopacket.Payload, 18)), "vlan id 7 arp op 1 target 192.0.2.10", "untagged arp; incomplete"},
		{"arp of hardware type 6", ieee, "arp; arp op 1 sender 10.0.0.1 target 192.0.2.10", "arp op 2; incomplete"},
		{"arp of another network", chaos, "arp; eth type 0x0806", "arp op 1; arp op 0/0x8000; incomplete"},
		{"27 bytes of arp", request[:14+27], "arp; arp incomplete; incomplete", "arp op 1; arp op 0/0x8000"},
		{"arp in vxlan", build(t, eth(tIPv4), ip4(pUDP), udp(1, 4789), &layers.VXLAN{ValidIDFlag: true, VNI: 5}, eth(tARP), raw(request[14:]...)),
			"vxlan inner arp target 192.0.2.10; vxlan inner arp", "arp; vxlan inner arp op 2; vxlan inner incomplete"},
		{"arp in gre without Ethernet", build(t, eth(tIPv4), ip4(pGRE), raw(0, 0, 0x08, 0x06), raw(request[14:]...)), "gre inner any", "gre inner arp; gre inner arp op 1; gre inner incomplete"},
		{"sctp", sctp, "sctp; sctp sport 40000 dport diameter vtag 0x01020304; sctp dport 3000-4000; sctp vtag 0x01000000/0xff000000; ipv4 proto sctp", "sctp dport 1-9; sctp vtag 1; tcp; udp; incomplete"},
		{"seven bytes of sctp", sctp[:14+20+7], "sctp; sctp incomplete", "sctp sport 40000; sctp dport 0-65535; sctp vtag 0/1"},
		{"eight bytes of sctp", sctp[:14+20+8], "sctp dport 3868 vtag 0x01020304", "incomplete"},
		{"sctp behind an extension header", build(t, eth(tIPv6), ip6(0), hbh(1, 132), raw(sctp[14+20:]...)), "ipv6 sctp vtag 0x01020304", "ipv4 sctp"},
		{"later fragment of sctp", build(t, eth(tIPv4), fragment4(132, false, 9), raw(sctp[14+20:]...)), "sctp", "sctp dport 3868; sctp vtag 0x01020304; incomplete"},
		{"ah over ipv4", ah4, "ipv4 ah; ipv4 ah spi 0x12345678; ipv4 ah spi 0x12000000/0xff000000; ipv4 proto ah", "ipv4 ah spi 1; tcp; esp; incomplete"},
		{"seven bytes of ah", ah4[:14+20+7], "ipv4 ah; ipv4 ah incomplete", "ipv4 ah spi 0x12345678; ipv4 ah spi 0/1"},
		{"eight bytes of ah", ah4[:14+20+8], "ipv4 ah spi 0x12345678", "incomplete"},
		{"later fragment of ah", build(t, eth(tIPv4), fragment4(51, false, 9), raw(ah4[14+20:]...)), "ipv4 ah", "ipv4 ah spi 0x12345678; incomplete"},
		{"dscp and ecn", http4, "ipv4 dscp 4; ipv4 ecn 2; ipv4 ecn ect0; ipv4 dscp 4/0x3c ecn 0/1", "ipv4 dscp ef; ipv4 ecn ce; ipv4 dscp 4 ecn 3"},
		{"dscp and ecn of ipv6", icmp6, "ipv6 dscp 13; ipv6 ecn 0", "ipv6 dscp 12; ipv6 ecn ce"},
		{"mpls", labels, "mpls; mpls label 16 tc 5 bos 0 ttl 64; mpls label 0x10/0xffff0; eth type 0x8847 mpls; untagged mpls", "mpls label 17; mpls bos 1; mpls ttl 63; ipv4; tcp; incomplete"},
		{"mpls multicast behind a tag", build(t, eth(tTag), tag(7, 0, 0x8848), raw(0, 1, 1, 64)), "vlan id 7 mpls label 16 bos 1; eth type 0x8848", "eth type 0x8847 mpls; untagged mpls"},
		{"three bytes of a label", labels[:14+3], "eth type 0x8847; incomplete", "mpls; mpls label 0/1"},
		{"four bytes of a label", labels[:14+4], "mpls label 16", "incomplete"},
		{"mpls in gre", build(t, eth(tIPv4), ip4(pGRE), raw(0, 0, 0x88, 0x47), raw(0, 1, 1, 64)), "gre inner mpls label 16; gre inner any", "mpls; gre inner ipv4; gre inner incomplete"},
		{"mpls in gre cut", build(t, eth(tIPv4), ip4(pGRE), raw(0, 0, 0x88, 0x47), raw(0, 1, 1, 64))[:14+20+4+3], "gre inner incomplete", "gre inner mpls; incomplete"},
		{"mpls in vxlan", build(t, eth(tIPv4), ip4(pUDP), udp(1, 4789), &layers.VXLAN{ValidIDFlag: true, VNI: 5}, eth(0x8847), raw(0, 1, 1, 64)), "vxlan inner mpls label 16", "mpls"},
		{"ihl below 5", badIHL, "eth type 0x0800; incomplete", "ipv4; tcp"},
		{"version 6 under 0x0800", badVersion, "eth type 0x0800; incomplete", "ipv4; ipv6; tcp"},
		{"40 bytes of options", opts, "udp dport 53; ipv4", "udp dport 0"},
		{"options cut", opts[:14+59], "eth; incomplete", "ipv4; udp"},
		{"options whole", opts[:14+60], "ipv4; udp; udp incomplete", "udp dport 53"},
		{"one tag", build(t, eth(tTag), tag(100, 5, tIPv4), ip4(pUDP), udp(1, 53)),
			"vlan; vlan id 100 pcp 5 dei 0; udp dport 53; eth type 0x0800; vlan id 0x064/0x0ff", "vlan vlan; vlan id 7; vlan dei 1; eth type 0x8100; untagged"},
		{"two tags", qinq, "vlan; vlan id 100; vlan id 100 vlan id 7; vlan vlan id 7 ipv6 udp; udp dport 2; eth type 0x86dd", "vlan id 7; vlan id 7 vlan id 100; eth type 0x88a8; incomplete"},
		{"three tags", triple, "vlan id 1 vlan id 2; eth type 0x8100; incomplete; vlan vlan incomplete", "ipv4; tcp; vlan id 3; eth type 0x0800"},
		{"second tag cut", qinq[:14+4+3], "vlan id 100; eth type 0x8100; incomplete", "vlan vlan; ipv6"},
		{"first tag cut", qinq[:14+3], "eth type 0x88a8; incomplete; untagged", "vlan"},
		{"first fragment", first, "ipv4 frag first; ipv4 frag yes; udp; udp dport 53", "ipv4 frag no; ipv4 frag later; incomplete"},
		{"later fragment", later, "ipv4 frag later; ipv4 frag yes; udp; ipv4 proto 17", "ipv4 frag first; udp dport 53; udp sport 1; udp dport 0-65535; icmp; tcp; incomplete"},
		{"later fragment of icmp", build(t, eth(tIPv4), fragment4(1, false, 1), raw(8, 0)), "icmp", "icmp type 8; icmp code 0; incomplete"},
		{"later fragment of gre", build(t, eth(tIPv4), fragment4(pGRE, true, 1), raw(0, 0, 8, 0)), "gre", "gre inner any; gre key 0"},
		{"later fragment of vxlan", build(t, eth(tIPv4), fragment4(pUDP, false, 1), raw(0, 1, 0x12, 0xb5, 0, 40, 0, 0, 8, 0, 0, 0, 0, 0, 5, 0)), "udp", "vxlan; vxlan inner any"},
		{"icmp", icmp4, "icmp; icmp type 8 code 3; ipv4 icmp", "icmp type 0; ipv6 icmp; udp"},
		{"icmp of one byte", icmp4[:14+20+1], "icmp; icmp incomplete", "icmp type 8"},
		{"icmpv6", icmp6, "icmp; icmp type 128; ipv6 icmp; ipv6 nexthdr 58", "ipv4 icmp; icmp type 8"},
		{"icmp's number over ipv6", build(t, eth(tIPv6), ip6(1), raw(8, 0)), "ipv6 nexthdr 1", "icmp; icmp type 8; incomplete"},
		{"icmpv6's number over ipv4", build(t, eth(tIPv4), ip4(58), raw(128, 0)), "ipv4 proto 58", "icmp"},
		{"ipv6 fields", qinq, "ipv6 src 2001:db8::/32 dst 2001:db8::2 label 0xabcde nexthdr 17 tclass 0x34 hoplimit 63; ipv6 label 0xa0000/0xf0000", "ipv6 label 0xabcdf; ipv6 tclass 0x35; ipv6 dst 2001:db8::1"},
		{"ipv6 cut", icmp6[:14+39], "eth type 0x86dd", "ipv6"},
		{"one extension header", chain(1), "udp dport 53; ipv6 nexthdr 0 udp", "ipv6 nexthdr 17"},
		{"eight extension headers", chain(8), "udp dport 53", "tcp; incomplete"},
		{"nine extension headers", chain(9), "ipv6 nexthdr 0; incomplete; ipv6 nexthdr 0 incomplete", "udp; tcp; icmp; gre; udp incomplete"},
		{"extension header to the end of the frame", chain(1)[:14+40+8], "udp; udp incomplete", "udp dport 53"},
		{"extension header cut", chain(1)[:14+40+7], "ipv6; incomplete", "udp"},
		{"authentication header", ah, "tcp dport 80; ipv6 nexthdr ah", "udp; ipv4 ah; ipv4 ah spi 0"},
		{"ESP ends the walk", build(t, eth(tIPv6), ip6(50), raw(17, 0, 0, 0, 0, 0, 0, 0), udp(1, 53)), "ipv6 nexthdr 50", "udp; incomplete"},
		{"first fragment of ipv6", frag6(17, 0), "udp dport 53; udp; ipv6 frag first; ipv6 frag yes udp dport 53", "tcp; ipv6 frag no; ipv6 frag later; ipv4 frag first"},
		{"later fragment of ipv6", frag6(17, 185), "udp; ipv6 nexthdr 44 udp; ipv6 frag later udp; ipv6 frag yes", "udp dport 53; incomplete; ipv6 frag first; ipv6 frag no"},
		{"whole datagram of ipv6 with a fragment header", atomic, "ipv6 frag no; udp dport 53", "ipv6 frag yes; ipv6 frag first"},
		{"first fragment behind another header", build(t, eth(tIPv6), ip6(60), raw(44, 0, 1, 4, 0, 0, 0, 0), raw(17, 0, 0, 1, 0, 0, 0, 1), udp(1, 53)), "ipv6 frag first nexthdr 60; udp dport 53", "ipv6 frag no"},
		{"no fragment header of ipv6", chain(1), "ipv6 frag no", "ipv6 frag yes"},
		{"fragment header behind nine others", build(t, eth(tIPv6), ip6(0), hbh(9, 44), raw(17, 0, 0, 9, 0, 0, 0, 1), udp(1, 53)), "ipv6 frag no; incomplete", "ipv6 frag yes"},
		{"later fragment that starts with an extension header", frag6(60, 1), "ipv6 nexthdr 44", "udp"},
		{"fragment header cut", frag6(17, 0)[:14+40+7], "ipv6; incomplete; ipv6 frag no incomplete", "udp; ipv6 frag yes"},
		{"vxlan", vxlan,
			"vxlan; vxlan vni 5; vxlan inner any; udp; udp sport 5555 vxlan vni 5; ipv4 dst 192.0.2.10 vxlan inner vlan id 7 ipv4 tcp dport 80; vxlan vni 5 inner eth src 02:00:00:00:00:01 type 0x0800; untagged vxlan; vxlan vni 0x000004/0xfffffe",
			"tcp; tcp dport 80; vlan; vxlan vni 6; vxlan inner udp; vxlan inner untagged; vxlan inner vlan vlan; vxlan inner tcp dport 443; incomplete; vxlan inner incomplete"},
		{"vxlan without its flag", noI, "udp dport 4789; vxlan; vxlan vni 5; vxlan vni 5 inner vlan id 7 ipv4 tcp dport 80", "vxlan vni 6"},
		{"vxlan header cut", vxlan[:14+20+8+7], "udp dport 4789; vxlan", "vxlan vni 5; vxlan vni 0/1; vxlan inner any"},
		{"vxlan's port and no more", vxlan[:14+20+4], "vxlan; udp sport 5555 vxlan", "vxlan inner any; incomplete"},
		{"vxlan's port cut", vxlan[:14+20+3], "udp; incomplete", "vxlan"},
		{"vxlan with nothing inside", vxlan[:14+20+8+8], "vxlan vni 5 inner any; vxlan inner incomplete", "vxlan inner eth; incomplete"},
		{"other port than vxlan's", build(t, eth(tIPv4), ip4(pUDP), udp(4789, 4790), &layers.VXLAN{ValidIDFlag: true, VNI: 5}), "udp", "vxlan"},
		{"gre with a key", greKey, "gre; gre key 7; gre inner any; gre key 7 inner ipv6 udp dport 53; ipv4 proto 47", "gre key 8; gre inner ipv4; gre inner eth; gre inner untagged; ipv6; udp; gre inner incomplete"},
		{"gre with checksum, key and sequence", greAll, "gre key 9 inner tcp dport 80", "gre key 3"},
		{"gre without a key", greEth, "gre; gre inner eth dst 02:00:00:00:00:02 ipv4 icmp type 8; ipv6 gre", "gre key 0; gre key 0/0x80000000"},
		{"gre key cut", greKey[:14+20+7], "gre", "gre key 7; gre inner any; incomplete"},
		{"gre version 1", grePPTP, "gre; ipv4 proto 47", "gre inner any"},
		{"gre with routing", greRouting, "gre", "gre inner any; gre inner ipv4"},
		{"gre of something else", build(t, eth(tIPv4), ip4(pGRE), &layers.GRE{Protocol: 0x8847}, ip4(pTCP)), "gre inner any", "gre inner ipv4; gre inner eth; incomplete; gre inner incomplete"},
		{"nothing is looked at in two tunnels", build(t, eth(tIPv4), ip4(pUDP), udp(1, 4789), &layers.VXLAN{ValidIDFlag: true, VNI: 5}, eth(tIPv4), ip4(pGRE), &layers.GRE{Protocol: tIPv4}, ip4(pTCP)),
			"vxlan inner ipv4 proto 47", "gre; vxlan inner tcp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for want, texts := range map[bool]string{true: c.yes, false: c.no} {
				for text := range strings.SplitSeq(texts, ";") {
					m, err := flow.ParseMatch(text)
					if err != nil {
						t.Fatal(err)
					}
					_, got := oracle.New([]flow.Flow{{Match: m}}).Match(oracle.Packet{Frame: c.frame})
					if got != want {
						t.Errorf("%q matches: %v, want %v\n%s", text, got, want, hex.Dump(c.frame))
					}
				}
			}
		})
	}
}

func TestPriorityOrderAndSideDecideWhichFlowWins(t *testing.T) {
	match := func(text string) flow.Match {
		m, err := flow.ParseMatch(text)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := oracle.New([]flow.Flow{
		{Name: "late", Priority: 9, Match: match("udp")},
		{Name: "egress", Priority: 0, Match: match("udp"), Direction: flow.Egress},
		{Name: "elsewhere", Priority: 1, Match: match("udp"), Interface: "eth1"},
		{Name: "first", Priority: 5, Match: match("udp dport 53")},
		{Name: "second", Priority: 5, Match: match("ipv4")},
	})
	dns := build(t, eth(tIPv4), ip4(pUDP), udp(1, 53))
	other := build(t, eth(tIPv6), ip6(pUDP), udp(1, 54))
	for _, c := range []struct {
		name   string
		packet oracle.Packet
		want   int
	}{
		{"of one priority the first added wins", oracle.Packet{Frame: dns, Interface: "eth0"}, 3},
		{"a larger number comes last", oracle.Packet{Frame: other, Interface: "eth0"}, 0},
		{"the interface decides", oracle.Packet{Frame: dns, Interface: "eth1"}, 2},
		{"the direction decides", oracle.Packet{Frame: dns, Interface: "eth1", Direction: flow.Egress}, 1},
		{"nothing matches", oracle.Packet{Frame: build(t, eth(0x0806)), Interface: "eth0"}, -1},
	} {
		got, ok := m.Match(c.packet)
		if !ok {
			got = -1
		}
		if got != c.want {
			t.Errorf("%s: flow %d, want %d", c.name, got, c.want)
		}
	}
}

// No frame may make the matcher panic, and cutting a frame must not make a header appear.
func FuzzMatch(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45})
	m := oracle.New([]flow.Flow{
		{Match: flow.Match{VXLAN: &flow.VXLAN{Inner: &flow.Match{IPv6: &flow.IPv6{}, TCP: &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 1, Last: 9}}}}}}},
		{Match: flow.Match{GRE: &flow.GRE{Inner: &flow.Match{VLAN: make([]flow.VLAN, 2), ICMP: &flow.ICMP{}}}}},
		{Match: flow.Match{IPIP: &flow.IPIP{Inner: &flow.Match{IPv6: &flow.IPv6{}, ICMP: &flow.ICMP{}}}}},
		{Match: flow.Match{Geneve: &flow.Geneve{Inner: &flow.Match{IPv4: &flow.IPv4{}, VLAN: make([]flow.VLAN, 1)}}}},
		{Match: flow.Match{GTPU: &flow.GTPU{Inner: &flow.Match{IPv4: &flow.IPv4{}}}}},
		{Match: flow.Match{MPLSUDP: &flow.MPLSUDP{Inner: &flow.Match{IPv6: &flow.IPv6{}}}}},
		{Match: flow.Match{UDP: &flow.Ports{Src: flow.Port{Value: 1, Mask: 1}}}},
		{Match: flow.Match{IPv4: &flow.IPv4{}}}, {Match: flow.Match{IPv6: &flow.IPv6{}}}, {Match: flow.Match{VLAN: make([]flow.VLAN, 1)}},
	})
	f.Fuzz(func(t *testing.T, frame []byte) {
		_, whole := m.Match(oracle.Packet{Frame: frame})
		for n := range frame {
			if _, ok := m.Match(oracle.Packet{Frame: frame[:n]}); ok && !whole {
				t.Fatalf("%d of %d bytes match, all of them do not", n, len(frame))
			}
		}
	})
}
