package oracle_test

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
)

// Each row of docs/flows.md about tunnels, to the byte: what the header needs, what is skipped, and what is inside.
func TestPacketsInTunnelsMatchAsDocumented(t *testing.T) {
	dns := func(ip gopacket.SerializableLayer) []gopacket.SerializableLayer {
		return []gopacket.SerializableLayer{ip, udp(1, 53), raw(1, 2, 3, 4)}
	}
	inside := dns(ip4(pUDP))
	over := func(port layers.UDPPort, header gopacket.Payload, in ...gopacket.SerializableLayer) []byte {
		b := build(t, append([]gopacket.SerializableLayer{eth(tIPv4), ip4(pUDP), udp(7, port), header}, in...)...)
		return b[:14+binary.BigEndian.Uint16(b[16:])] // without the padding of Ethernet
	}
	const udpEnd = 14 + 20 + 8

	geneve := func(first, typ0, typ1 byte, options int) gopacket.Payload {
		return append(raw(first, 0x40, typ0, typ1, 0, 0, 5, 0xaa), make(gopacket.Payload, options)...)
	}
	gtp := func(flags, typ byte, more ...byte) gopacket.Payload {
		return append(raw(flags, typ, 0, 36, 0, 0, 0x10, 0), more...)
	}
	session := func(n int) (exts []byte) { // the optional fields, and n extension headers of 8 bytes
		exts = []byte{0, 1, 0, 0x85}
		for i := range n {
			next := byte(0x85)
			if i == n-1 {
				next = 0
			}
			exts = append(exts, 2, 0, 0, 0, 0, 0, 0, next)
		}
		return exts
	}
	labels := func(n int) (stack gopacket.Payload) { // n entries: labels 16, 17, and so on
		for i := range n {
			bottom := byte(0)
			if i == n-1 {
				bottom = 1
			}
			stack = append(stack, 0, 1, byte(i)<<4|5<<1|bottom, 64)
		}
		return stack
	}
	fragment := func(later uint16) []byte {
		return build(t, append([]gopacket.SerializableLayer{eth(tIPv4), fragment4(4, true, later)}, inside...)...)
	}
	cut := func(b []byte, n int) []byte { return b[:n] }

	for _, c := range []struct {
		name    string
		frame   []byte
		yes, no string // matches, separated by semicolons
	}{
		{"IPv4 in IPv4", build(t, append([]gopacket.SerializableLayer{eth(tIPv4), ip4(4)}, inside...)...),
			"ipip; ipip inner any; ipip inner ipv4; ipip inner ipv4 src 10.0.0.1 udp dport 53; ipv4 proto 4 ipip inner udp; ipip inner ipv4 frag no",
			"udp; gre; ipip inner ipv6; ipip inner tcp; ipv6 ipip; incomplete; ipip inner incomplete; ipv4 proto 41/0xff"},
		{"IPv6 in IPv4", build(t, append([]gopacket.SerializableLayer{eth(tIPv4), ip4(41)}, dns(ip6(pUDP))...)...),
			"ipip inner ipv6 udp dport 53; ipv4 ipip inner ipv6 dst 2001:db8::2; ipv4 proto 41 ipip", "ipip inner ipv4; ipv6 ipip; udp"},
		{"IPv4 in IPv6", build(t, append([]gopacket.SerializableLayer{eth(tIPv6), ip6(4)}, inside...)...),
			"ipv6 ipip inner ipv4 udp dport 53; ipv6 nexthdr 4 ipip", "ipv4 ipip; ipip inner ipv6"},
		{"IPv6 in IPv6 behind extension headers", build(t, append([]gopacket.SerializableLayer{eth(tIPv6), ip6(60), raw(41, 0, 1, 4, 0, 0, 0, 0)}, dns(ip6(pUDP))...)...),
			"ipv6 nexthdr 60 ipip inner ipv6 udp dport 53", "ipip inner ipv4; ipv6 nexthdr 41"},
		{"IPv6 in the protocol of IPv4", build(t, append([]gopacket.SerializableLayer{eth(tIPv4), ip4(4)}, dns(ip6(pUDP))...)...),
			"ipip; ipip inner any; ipip inner incomplete", "ipip inner ipv6; ipip inner ipv4; ipip inner udp; incomplete"},
		{"nothing in IP", build(t, eth(tIPv4), ip4(4)), "ipip inner any; ipip inner incomplete", "ipip inner ipv4; incomplete"},
		{"a first fragment of IP in IP", fragment(0), "ipip inner udp dport 53; ipv4 frag first ipip", "ipv4 frag later"},
		{"a later fragment of IP in IP", fragment(1), "ipip; ipv4 frag later ipip", "ipip inner any; ipip inner udp; incomplete"},
		{"IP in IP in IP", build(t, append([]gopacket.SerializableLayer{eth(tIPv4), ip4(4), ip4(4)}, inside...)...), "ipip inner ipv4 proto 4", "ipip inner udp"},

		{"geneve with IPv4", over(6081, geneve(0, 8, 0, 0), inside...),
			"geneve; geneve vni 5; geneve inner any; geneve vni 5 inner ipv4 udp dport 53; udp sport 7 geneve; udp dport 6081", "geneve vni 6; vxlan; gtpu; geneve inner eth; geneve inner ipv6; incomplete; geneve inner incomplete"},
		{"geneve with Ethernet", over(6081, geneve(0, 0x65, 0x58, 0), append([]gopacket.SerializableLayer{eth(tTag), tag(9, 0, tIPv4)}, inside...)...),
			"geneve vni 5 inner vlan id 9 udp dport 53; geneve inner eth src 02:00:00:00:00:01", "geneve inner untagged; geneve inner vlan id 8"},
		{"geneve with MPLS", over(6081, geneve(0, 0x88, 0x47, 0), raw(0, 1, 1, 64)), "geneve inner mpls label 16", "geneve inner ipv4; geneve inner incomplete"},
		{"geneve of something else", over(6081, geneve(0, 0x88, 0xb5, 0), inside...), "geneve inner any", "geneve inner ipv4; geneve inner eth; geneve inner incomplete"},
		{"geneve with options", over(6081, geneve(3, 8, 0, 12), inside...), "geneve vni 5 inner udp dport 53", "geneve inner incomplete"},
		{"geneve with the longest options", over(6081, geneve(63, 8, 0, 252), inside...), "geneve vni 5 inner udp dport 53", "geneve inner incomplete"},
		{"geneve with options cut", over(6081, geneve(3, 8, 0, 11)), "geneve vni 5 inner any; geneve inner incomplete", "geneve inner ipv4; incomplete"},
		{"geneve with whole options and nothing behind", over(6081, geneve(3, 8, 0, 12)), "geneve inner incomplete", "geneve inner ipv4"},
		{"geneve of version 1", over(6081, geneve(0x40, 8, 0, 0), inside...), "geneve; udp dport 6081", "geneve vni 5; geneve inner any"},
		{"geneve with a critical option and OAM", over(6081, raw(0, 0xc0, 8, 0, 0, 0, 5, 0), inside...), "geneve vni 5 inner udp dport 53", "geneve inner incomplete"},
		{"seven bytes of geneve", cut(over(6081, geneve(0, 8, 0, 0), inside...), udpEnd+7), "geneve", "geneve vni 5; geneve inner any; incomplete"},
		{"eight bytes of geneve", cut(over(6081, geneve(0, 8, 0, 0), inside...), udpEnd+8), "geneve vni 5; geneve inner incomplete", "geneve inner ipv4"},
		{"geneve's port and no more", cut(over(6081, geneve(0, 8, 0, 0)), 14+20+4), "geneve", "geneve inner any; incomplete"},
		{"another port than geneve's", over(6082, geneve(0, 8, 0, 0), inside...), "udp", "geneve"},

		{"gtpu", over(2152, gtp(0x30, 255), inside...),
			"gtpu; gtpu teid 4096; gtpu inner any; gtpu teid 0x1000 inner ipv4 udp dport 53; udp dport 2152", "gtpu teid 1; gtpu inner ipv6; geneve; incomplete; gtpu inner incomplete"},
		{"gtpu with IPv6", over(2152, gtp(0x30, 255), dns(ip6(pUDP))...), "gtpu teid 4096 inner ipv6 udp dport 53", "gtpu inner ipv4"},
		{"gtpu with Ethernet", over(2152, gtp(0x30, 255), append([]gopacket.SerializableLayer{eth(tIPv4)}, inside...)...), "gtpu teid 4096 inner any", "gtpu inner ipv4; gtpu inner incomplete"},
		{"gtpu with a sequence number", over(2152, gtp(0x32, 255, 0, 9, 0, 0x85), inside...), "gtpu teid 4096 inner udp dport 53", "gtpu inner incomplete"},
		{"gtpu with an N-PDU number", over(2152, gtp(0x31, 255, 0, 0, 7, 0x85), inside...), "gtpu teid 4096 inner udp dport 53", "gtpu inner incomplete"},
		{"gtpu with E and no extension header", over(2152, gtp(0x34, 255, 0, 0, 0, 0), inside...), "gtpu inner udp dport 53", "gtpu inner incomplete"},
		{"gtpu with a PDU session container", over(2152, gtp(0x34, 255, session(1)...), inside...), "gtpu teid 4096 inner udp dport 53", "gtpu inner incomplete"},
		{"gtpu with four extension headers", over(2152, gtp(0x36, 255, session(4)...), inside...), "gtpu inner udp dport 53", "gtpu inner incomplete"},
		{"gtpu with five extension headers", over(2152, gtp(0x34, 255, session(5)...), inside...), "gtpu teid 4096 inner any; gtpu inner incomplete", "gtpu inner ipv4; incomplete"},
		{"gtpu with an extension header of length 0", over(2152, gtp(0x34, 255, 0, 0, 0, 0x85, 0, 0, 0, 0), inside...), "gtpu teid 4096 inner incomplete", "gtpu inner ipv4"},
		{"gtpu with an extension header cut", over(2152, gtp(0x34, 255, session(2)[:19]...)), "gtpu inner incomplete", "gtpu inner ipv4"},
		{"gtpu with its optional fields cut", over(2152, gtp(0x32, 255, 0, 9, 0)), "gtpu teid 4096; gtpu inner incomplete", "gtpu inner ipv4"},
		{"gtpu and nothing behind", over(2152, gtp(0x30, 255)), "gtpu inner any", "gtpu inner ipv4; gtpu inner incomplete"},
		{"gtpu with IPv4 cut", cut(over(2152, gtp(0x30, 255), inside...), udpEnd+8+19), "gtpu inner incomplete", "gtpu inner ipv4; incomplete"},
		{"gtpu with the spare bit", over(2152, gtp(0x38, 255), inside...), "gtpu inner udp dport 53", "gtpu inner incomplete"},
		{"gtpu echo", over(2152, gtp(0x32, 1, 0, 9, 0, 0)), "gtpu", "gtpu teid 4096; gtpu inner any"},
		{"gtpu end marker", over(2152, gtp(0x30, 254)), "gtpu", "gtpu teid 4096"},
		{"gtp version 2", over(2152, gtp(0x50, 255), inside...), "gtpu", "gtpu teid 4096; gtpu inner any"},
		{"gtp prime", over(2152, gtp(0x20, 255), inside...), "gtpu", "gtpu teid 4096; gtpu inner any"},
		{"seven bytes of gtp", cut(over(2152, gtp(0x30, 255)), udpEnd+7), "gtpu", "gtpu teid 4096; gtpu inner any"},

		{"mpls over udp", over(6635, labels(1), inside...),
			"mplsudp; mplsudp label 16 tc 5 ttl 64; mplsudp bos 1; mplsudp inner any; mplsudp label 16 inner ipv4 udp dport 53", "mplsudp label 17; mpls; mplsudp inner ipv6; incomplete; mplsudp inner incomplete"},
		{"IPv6 in mpls over udp", over(6635, labels(3), dns(ip6(pUDP))...), "mplsudp label 16 bos 0 inner ipv6 udp dport 53", "mplsudp label 17; mplsudp inner ipv4"},
		{"eight labels over udp", over(6635, labels(8), inside...), "mplsudp inner udp dport 53", "mplsudp inner incomplete"},
		{"nine labels over udp", over(6635, labels(9), inside...), "mplsudp label 16 inner any; mplsudp inner incomplete", "mplsudp inner ipv4; incomplete"},
		{"mpls over udp with the stack cut", over(6635, labels(3)[:11]), "mplsudp label 16; mplsudp inner incomplete", "mplsudp inner ipv4"},
		{"mpls over udp of a pseudowire", over(6635, labels(1), append([]gopacket.SerializableLayer{raw(0, 0, 0, 0), eth(tIPv4)}, inside...)...), "mplsudp label 16 inner any", "mplsudp inner ipv4; mplsudp inner incomplete"},
		{"three bytes of mpls over udp", over(6635, labels(1)[:3]), "mplsudp; udp dport 6635", "mplsudp label 16; mplsudp label 0/1; mplsudp inner any; incomplete"},

		{"ERSPAN type II", build(t, eth(tIPv4), ip4(pGRE), raw(0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 1, 0, 0, 0, 0), eth(tIPv4), ip4(pTCP), tcp(1, 2)),
			"gre; gre inner any", "gre inner eth; gre inner ipv4; gre inner incomplete"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for want, texts := range map[bool]string{true: c.yes, false: c.no} {
				for text := range strings.SplitSeq(texts, ";") {
					m, err := flow.ParseMatch(text)
					if err != nil {
						t.Fatal(err)
					}
					if got := oracle.Matches(m, oracle.Packet{Frame: c.frame}); got != want {
						t.Errorf("%q matches: %v, want %v\n%s", text, got, want, hex.Dump(c.frame))
					}
				}
			}
		})
	}
}
