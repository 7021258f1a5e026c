//go:build cgo

package ibv

import (
	"errors"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/frame"
)

// The rules match one field each: a rule with the packet's own value counts it, and a rule with one
// bit flipped does not. Binding and kernel take the layout from different sources, so a
// misplaced field in either fails the test.
func TestDevXMatchesEveryField(t *testing.T) {
	b := newDevXBench(t)
	key := uint32(0xdeadbeef)
	far, near := [6]byte{2, 0xa, 0xb, 0xc, 0xd, 0xe}, [6]byte(b.wire.Near.MAC)
	eth := frame.Eth{Dst: near, Src: far}
	in := frame.Eth{Dst: [6]byte{2, 1, 2, 3, 4, 5}, Src: [6]byte{2, 9, 8, 7, 6, 5}}
	v4 := frame.IPv4{Src: frame.Addr("10.9.0.2"), Dst: frame.Addr("10.9.0.1"), TOS: 0xb9, TTL: 77}
	v6 := frame.IPv6{Src: frame.Addr("fd09::2"), Dst: frame.Addr("fd09::1"), TrafficClass: 0x2e, FlowLabel: 0xabcde, HopLimit: 9}
	udp, tcp := frame.UDP{Src: 0x1234, Dst: 0x5678}, frame.TCP{Src: 0x2345, Dst: 0x6789, Flags: frame.SYN | frame.PSH}
	v4in := func(a, b byte) (ip [16]byte) { copy(ip[12:], []byte{10, 9, a, b}); return }
	const ff = 0xff
	macMask := [6]byte{ff, ff, ff, ff, ff, ff}
	ipMask := [16]byte{ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff}

	type test struct {
		section     int    // section of fte_match_param
		name        string // the field, and a suffix that makes the name unique
		frame       []byte
		mask, value MatchParam
	}
	plain := func(layers ...frame.Layer) []byte {
		return frame.Build(append(append([]frame.Layer{eth}, layers...), frame.Payload(64))...)
	}
	vxlan := func(layers ...frame.Layer) []byte {
		return plain(append([]frame.Layer{v4, frame.UDP{Src: 1, Dst: 4789}, frame.VXLAN{VNI: 0x123456}, in}, layers...)...)
	}
	outer := func(name string, f []byte, mask, value MatchHeaders) test {
		return test{0, name, f, MatchParam{Outer: mask}, MatchParam{Outer: value}}
	}
	inner := func(name string, f []byte, mask, value MatchHeaders) test {
		return test{2, name + " inner", f, MatchParam{Inner: mask}, MatchParam{Inner: value}}
	}
	misc := func(name string, f []byte, mask, value MatchMisc) test {
		return test{1, name, f, MatchParam{Misc: mask}, MatchParam{Misc: value}}
	}
	u4, t4, u6, t6 := plain(v4, udp), plain(v4, tcp), plain(v6, udp), plain(v6, tcp)
	tagged := plain(frame.VLAN{ID: 0x9ab, PCP: 5, DEI: true}, v4, udp)
	double := plain(frame.VLAN{ID: 0x123, PCP: 2, TPID: frame.TypeQinQ}, frame.VLAN{ID: 0x9ab, PCP: 5, DEI: true}, v4, udp)
	double2 := plain(frame.VLAN{ID: 0x123, PCP: 2}, frame.VLAN{ID: 0x9ab, PCP: 5, DEI: true, TPID: frame.TypeQinQ}, v4, udp)
	gre := plain(v4, frame.GRE{Key: &key, Checksum: true}, v4, udp)
	greSeq := plain(v4, frame.GRE{Sequence: &key}, v6, udp)
	frag := frame.FragmentsIPv4([]frame.Layer{eth}, v4, 64, udp, frame.Payload(200))[1]

	for _, c := range []test{
		outer("smac", u4, MatchHeaders{SMAC: macMask}, MatchHeaders{SMAC: far}),
		outer("dmac", u4, MatchHeaders{DMAC: macMask}, MatchHeaders{DMAC: near}),
		outer("ethertype", u6, MatchHeaders{EtherType: 0xffff}, MatchHeaders{EtherType: 0x86dd}),
		outer("cvlan_tag", tagged, MatchHeaders{CVLANTag: 1}, MatchHeaders{CVLANTag: 1}),
		outer("cvlan_tag absent", u4, MatchHeaders{CVLANTag: 1}, MatchHeaders{}),
		outer("svlan_tag", double, MatchHeaders{SVLANTag: 1}, MatchHeaders{SVLANTag: 1}),
		outer("first_vid", tagged, MatchHeaders{CVLANTag: 1, FirstVID: 0xfff}, MatchHeaders{CVLANTag: 1, FirstVID: 0x9ab}),
		outer("first_prio", tagged, MatchHeaders{CVLANTag: 1, FirstPrio: 7}, MatchHeaders{CVLANTag: 1, FirstPrio: 5}),
		outer("first_cfi", tagged, MatchHeaders{CVLANTag: 1, FirstCFI: 1}, MatchHeaders{CVLANTag: 1, FirstCFI: 1}),
		outer("ip_version 4", u4, MatchHeaders{IPVersion: 15}, MatchHeaders{IPVersion: 4}),
		outer("ip_version 6", u6, MatchHeaders{IPVersion: 15}, MatchHeaders{IPVersion: 6}),
		outer("ip_protocol", t4, MatchHeaders{IPProtocol: 0xff}, MatchHeaders{IPProtocol: 6}),
		outer("ip_dscp", u4, MatchHeaders{IPVersion: 15, DSCP: 0x3f}, MatchHeaders{IPVersion: 4, DSCP: 0x2e}),
		outer("ip_ecn", u6, MatchHeaders{IPVersion: 15, ECN: 3}, MatchHeaders{IPVersion: 6, ECN: 2}),
		outer("ip_ttl_hoplimit 4", u4, MatchHeaders{IPVersion: 15, TTL: 0xff}, MatchHeaders{IPVersion: 4, TTL: 77}),
		outer("ip_ttl_hoplimit 6", u6, MatchHeaders{IPVersion: 15, TTL: 0xff}, MatchHeaders{IPVersion: 6, TTL: 9}),
		outer("frag", frag, MatchHeaders{IPVersion: 15, Frag: 1}, MatchHeaders{IPVersion: 4, Frag: 1}),
		outer("udp_sport", u4, MatchHeaders{IPProtocol: 0xff, UDPSPort: 0xffff}, MatchHeaders{IPProtocol: 17, UDPSPort: 0x1234}),
		outer("udp_dport", u6, MatchHeaders{IPProtocol: 0xff, UDPDPort: 0xffff}, MatchHeaders{IPProtocol: 17, UDPDPort: 0x5678}),
		outer("tcp_sport", t4, MatchHeaders{IPProtocol: 0xff, TCPSPort: 0xffff}, MatchHeaders{IPProtocol: 6, TCPSPort: 0x2345}),
		outer("tcp_dport", t6, MatchHeaders{IPProtocol: 0xff, TCPDPort: 0xffff}, MatchHeaders{IPProtocol: 6, TCPDPort: 0x6789}),
		outer("tcp_flags", t4, MatchHeaders{IPProtocol: 0xff, TCPFlags: 0x1ff}, MatchHeaders{IPProtocol: 6, TCPFlags: frame.SYN | frame.PSH}),
		outer("src_ip 4", u4, MatchHeaders{IPVersion: 15, SrcIP: [16]byte{12: 255, 255, 255, 255}}, MatchHeaders{IPVersion: 4, SrcIP: v4in(0, 2)}),
		outer("dst_ip 4", u4, MatchHeaders{IPVersion: 15, DstIP: [16]byte{12: 255, 255, 255, 255}}, MatchHeaders{IPVersion: 4, DstIP: v4in(0, 1)}),
		outer("src_ip 6", u6, MatchHeaders{IPVersion: 15, SrcIP: ipMask}, MatchHeaders{IPVersion: 6, SrcIP: v6.Src.As16()}),
		outer("dst_ip 6", u6, MatchHeaders{IPVersion: 15, DstIP: ipMask}, MatchHeaders{IPVersion: 6, DstIP: v6.Dst.As16()}),

		inner("smac", vxlan(v4, udp), MatchHeaders{SMAC: macMask}, MatchHeaders{SMAC: in.Src}),
		inner("dmac", vxlan(v4, udp), MatchHeaders{DMAC: macMask}, MatchHeaders{DMAC: in.Dst}),
		inner("ethertype", vxlan(v6, udp), MatchHeaders{EtherType: 0xffff}, MatchHeaders{EtherType: 0x86dd}),
		inner("tcp_dport", vxlan(v4, tcp), MatchHeaders{IPProtocol: 0xff, TCPSPort: 0xffff, TCPDPort: 0xffff}, MatchHeaders{IPProtocol: 6, TCPSPort: 0x2345, TCPDPort: 0x6789}),
		inner("dst_ip 6 in GRE", greSeq, MatchHeaders{IPVersion: 15, DstIP: ipMask}, MatchHeaders{IPVersion: 6, DstIP: v6.Dst.As16()}),

		misc("vxlan_vni", vxlan(v4, udp), MatchMisc{VXLANVNI: 0xffffff}, MatchMisc{VXLANVNI: 0x123456}),
		misc("gre_key", gre, MatchMisc{GREKPresent: 1, GREKey: 0xffffffff}, MatchMisc{GREKPresent: 1, GREKey: key}),
		misc("gre_protocol", greSeq, MatchMisc{GREProtocol: 0xffff}, MatchMisc{GREProtocol: 0x86dd}),
		misc("gre_c_present", gre, MatchMisc{GRECPresent: 1}, MatchMisc{GRECPresent: 1}),
		misc("gre_k_present", gre, MatchMisc{GREKPresent: 1}, MatchMisc{GREKPresent: 1}),
		misc("gre_s_present", greSeq, MatchMisc{GRESPresent: 1}, MatchMisc{GRESPresent: 1}),
		misc("outer_second_vid", double, MatchMisc{OuterSecondCVLANTag: 1, OuterSecondVID: 0xfff}, MatchMisc{OuterSecondCVLANTag: 1, OuterSecondVID: 0x9ab}),
		misc("outer_second_prio", double, MatchMisc{OuterSecondCVLANTag: 1, OuterSecondPrio: 7}, MatchMisc{OuterSecondCVLANTag: 1, OuterSecondPrio: 5}),
		misc("outer_second_cfi", double, MatchMisc{OuterSecondCVLANTag: 1, OuterSecondCFI: 1}, MatchMisc{OuterSecondCVLANTag: 1, OuterSecondCFI: 1}),
		misc("outer_second_svlan_tag", double2, MatchMisc{OuterSecondSVLANTag: 1}, MatchMisc{OuterSecondSVLANTag: 1}),
		misc("outer_ipv6_flow_label", u6, MatchMisc{OuterIPv6FlowLabel: 0xfffff}, MatchMisc{OuterIPv6FlowLabel: 0xabcde}),
		misc("inner_ipv6_flow_label", vxlan(v6, udp), MatchMisc{InnerIPv6FlowLabel: 0xfffff}, MatchMisc{InnerIPv6FlowLabel: 0xabcde}),
		{4, "icmp_code", plain(v4, frame.ICMP{Type: 8, Code: 3, Rest: 1}), MatchParam{Outer: MatchHeaders{IPProtocol: 0xff}, Misc3: MatchMisc3{ICMPType: 0xff, ICMPCode: 0xff}},
			MatchParam{Outer: MatchHeaders{IPProtocol: 1}, Misc3: MatchMisc3{ICMPType: 8, ICMPCode: 3}}},
		{4, "icmpv6_code", plain(v6, frame.ICMPv6{Type: 128, Code: 3}), MatchParam{Outer: MatchHeaders{IPProtocol: 0xff}, Misc3: MatchMisc3{ICMPv6Type: 0xff, ICMPv6Code: 0xff}},
			MatchParam{Outer: MatchHeaders{IPProtocol: 58}, Misc3: MatchMisc3{ICMPv6Type: 128, ICMPv6Code: 3}}},
	} {
		t.Run(c.name, func(t *testing.T) { b.field(t, c.frame, c.mask, c.value, flipped(t, c.value, c.section, c.name)) })
	}
}

// field makes a rule with each value and sends the frame.
func (b *devxBench) field(t *testing.T, f []byte, mask, value, other MatchParam) {
	counters, others := must(b.dx.AllocFlowCounters(1))(t), must(b.dx.AllocFlowCounters(1))(t) // older releases have no offsets
	defer counters.Close()
	defer others.Close()
	m := must(b.dx.CreateMatcher(MatcherAttr{Mask: mask}))(t)
	defer m.Close()
	right := must(m.CreateFlow(value, FlowActions{Counters: counters, DefaultMiss: true}))(t)
	defer right.Close()
	wrong := must(m.CreateFlow(other, FlowActions{Counters: others, DefaultMiss: true}))(t)
	defer wrong.Close()
	b.send(f, 1)
	got := make([]FlowCount, 2)
	if err := errors.Join(counters.Query(got[:1]), others.Query(got[1:])); err != nil {
		t.Fatal(err)
	}
	if want := times(1, f); got[0] != want || got[1] != (FlowCount{}) {
		t.Errorf("the field as it is counted %+v, another value %+v, want %+v and none", got[0], got[1], want)
	}
}

// flipped is value with the last bit of the named field turned.
func flipped(t *testing.T, value MatchParam, section int, name string) MatchParam {
	t.Helper()
	b, err := value.encode()
	if err != nil {
		t.Fatal(err)
	}
	s := value.sections()[section]
	fields := prmCodec{mode: prmList}
	s.prm(&fields)
	name, _, _ = strings.Cut(name, " ")
	for _, f := range fields.list {
		if f.name == name {
			at := section*matchSection*8 + f.bit + f.width - 1
			if name == "ip_version" { // 4 and 6: no other version exists
				at--
			}
			b[at/8] ^= 1 << (7 - at%8)
			decodePRM(b[section*matchSection:], s)
			return value
		}
	}
	t.Fatalf("section %d has no field %s", section, name)
	return value
}
