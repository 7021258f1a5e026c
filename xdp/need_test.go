package xdp

import "testing"

// Every further layer costs time for every packet.
func TestRuleNeedsTheLayersItLooksAtAndNoOthers(t *testing.T) {
	type side struct {
		flags, set Flags // asked for; and of these, present
		mask, key  Headers
	}
	rule := func(out, in side) *Rule {
		r := &Rule{}
		for _, l := range []struct {
			side
			key, mask *Headers
		}{{out, &r.Key.Out, &r.Mask.Out}, {in, &r.Key.In, &r.Mask.In}} {
			*l.key, *l.mask = l.side.key, l.side.mask
			l.key.Flags, l.mask.Flags = l.set, l.flags
		}
		return r
	}
	proto := func(n uint8, h Headers) side {
		k := Headers{Proto: n}
		h.Proto = 0xff
		return side{mask: h, key: k}
	}
	l4 := func(n uint8, more Flags) side {
		s := proto(n, Headers{L4: [4]byte{0, 0, 1, 0}})
		s.flags, s.set = FlagIPv4|FlagL4|more, FlagIPv4|FlagL4|more
		return s
	}
	flags := l4(6, FlagTCPFlags)
	flags.mask.L4, flags.mask.TCPFlags = [4]byte{}, 0x12
	high := l4(6, FlagTCPFlags)
	high.mask.L4, high.mask.TCPHigh = [4]byte{}, 1
	sctp := proto(132, Headers{Tunnel: [4]byte{0, 0, 0, 1}})
	sctp.flags, sctp.set = FlagL4, FlagL4
	arp := side{flags: FlagEth | FlagL4, set: FlagEth | FlagL4, mask: Headers{EthType: [2]byte{255, 255}, Addr: [32]byte{255}}, key: Headers{EthType: [2]byte{8, 6}}}
	other := side{flags: FlagEth | FlagL4, set: FlagEth | FlagL4, mask: Headers{EthType: [2]byte{255, 255}}, key: Headers{EthType: [2]byte{8, 0}}}
	mpls := side{flags: FlagMPLS, set: FlagMPLS, mask: Headers{Tunnel: [4]byte{0, 1}}}
	over := func(n uint8, port uint16, number [4]byte) side { // a tunnel with its header
		s := proto(n, Headers{Tunnel: number})
		s.flags, s.set = FlagIPv4|FlagTunnel, FlagIPv4|FlagTunnel
		if n == 17 {
			s.flags, s.set = s.flags|FlagL4, s.set|FlagL4
		}
		if port != 0 {
			s.mask.L4 = [4]byte{0, 0, 0xff, 0xff}
			s.key.L4 = [4]byte{0, 0, uint8(port >> 8), uint8(port)}
		}
		return s
	}
	for _, c := range []struct {
		name string
		rule *Rule
		want uint64
	}{
		{"any", rule(side{}, side{}), 0},
		{"untagged", rule(side{flags: FlagEth | FlagTag1, set: FlagEth}, side{}), 0},
		{"tcp with a port", rule(l4(6, 0), side{}), needIPv4 | needL4},
		{"udp with a port", rule(l4(17, 0), side{}), needIPv4 | needL4},
		{"high tcp flags", rule(high, side{}), needIPv4 | needMisc | needL4 | needTCPFlags | needTCPHigh},
		{"tcp flags", rule(flags, side{}), needIPv4 | needL4 | needTCPFlags},
		{"esp with an SPI", rule(l4(50, 0), side{}), needIPv4 | needL4 | needESP},
		{"sctp with a port", rule(l4(132, 0), side{}), needIPv4 | needL4 | needSCTP},
		{"sctp with a verification tag", rule(sctp, side{}), needIPv4 | needIPv6 | needL4 | needTags | needSCTP},
		{"ah with an SPI", rule(l4(51, 0), side{}), needIPv4 | needL4 | needAH},
		{"arp", rule(side{flags: FlagEth, set: FlagEth, mask: Headers{EthType: [2]byte{255, 255}}, key: Headers{EthType: [2]byte{8, 6}}}, side{}), needEth},
		{"arp with an address", rule(arp, side{}), needEth | needL4 | needARP},
		{"another type with its flag", rule(other, side{}), needEth | needL4 | needIPv4 | needESP | needSCTP | needAH},
		{"esp", rule(proto(50, Headers{}), side{}), needIPv4 | needIPv6},
		{"fragments of IPv6", rule(side{flags: FlagIPv6 | FlagFrag, set: FlagIPv6 | FlagFrag}, side{}), needIPv6},
		{"mpls", rule(side{flags: FlagMPLS, set: FlagMPLS}, side{}), needMPLS},
		{"mpls with a label", rule(mpls, side{}), needMPLS | needTags},
		{"vxlan with a number", rule(over(17, 4789, [4]byte{0, 1}), side{}), needIPv4 | needL4 | needTags | needVXLAN},
		{"geneve with a number", rule(over(17, 6081, [4]byte{0, 1}), side{}), needIPv4 | needL4 | needTags | needGeneve},
		{"gtp-u with a number", rule(over(17, 2152, [4]byte{0, 1}), side{}), needIPv4 | needL4 | needTags | needGTPU},
		{"mpls over udp with a label", rule(over(17, 6635, [4]byte{0, 1}), side{}), needIPv4 | needL4 | needTags | needMPLSUDP},
		{"a tunnel of any port", rule(over(17, 0, [4]byte{0, 1}), side{}), needIPv4 | needL4 | needTags | needVXLAN | needGeneve | needGTPU | needMPLSUDP},
		{"IPv4 in IP", rule(over(4, 0, [4]byte{}), side{}), needIPv4 | needTags | needIPIP},
		{"tcp flags in IPv6 in IP", rule(over(41, 0, [4]byte{}), flags),
			needIPv4 | needTags | needIPIP | (needLevel|needIPv4|needL4|needTCPFlags)<<needInner},
		{"tcp flags in any tunnel", rule(side{}, flags),
			needIPv4 | needIPv6 | needTags | needVXLAN | needGRE | needIPIP | needGeneve | needGTPU | needMPLSUDP | (needLevel|needIPv4|needL4|needTCPFlags)<<needInner},
		{"mpls with a label in gre", rule(side{flags: FlagIPv4 | FlagGRE, set: FlagIPv4 | FlagGRE}, mpls),
			needIPv4 | needTags | needGRE | (needLevel|needMPLS|needTags)<<needInner},
		{"tcp flags in vxlan", rule(over(17, 4789, [4]byte{}), flags),
			needIPv4 | needL4 | needTags | needVXLAN | (needLevel|needIPv4|needL4|needTCPFlags)<<needInner},
		{"incomplete", rule(side{flags: FlagIncomplete, set: FlagIncomplete}, side{}), needIPv4 | needIPv6 | needL4 | needTCPFlags | needESP | needMPLS | needSCTP | needAH | needARP},
		{"incomplete over IPv4", rule(side{flags: FlagIPv4 | FlagIncomplete, set: FlagIPv4 | FlagIncomplete}, side{}), needIPv4 | needL4 | needTCPFlags | needESP | needSCTP | needAH},
	} {
		if got := needOf(c.rule) & needLayers; got != c.want {
			t.Errorf("%s: needs %#x, want %#x", c.name, got, c.want)
		}
	}
}
