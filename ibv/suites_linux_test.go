//go:build cgo

package ibv

import (
	"net/netip"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/frame"
)

// The tests below are translated from rdma-core's tests (test_flow.py, and the verbs' part of
// test_mlx5_flow.py and test_mlx5_dr.py). Those send through one queue pair and look for the
// packets at another. Here real frames cross a veth, and counters must read exactly the number
// sent.

// iters is the number of rounds of the originals.
const iters = 10

// The headers of the packets in the suites.
var (
	suiteSrcMAC = [6]byte{0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc8}
	suiteDstMAC = [6]byte{0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc9}
	suiteEth    = frame.Eth{Dst: suiteDstMAC, Src: suiteSrcMAC}
	suiteIPv4   = frame.IPv4{Src: netip.MustParseAddr("1.1.1.1"), Dst: netip.MustParseAddr("2.2.2.2")}
	suiteIPv6   = frame.IPv6{Src: netip.MustParseAddr("a0a1::a2a3:a4a5:a6a7:a8a9"), Dst: netip.MustParseAddr("b0b1::b2b3:b4b5:b6b7:b8b9")}
	suiteUDP    = frame.UDP{Src: 0x1234, Dst: 0x5678}
	suiteTCP    = frame.TCP{Src: 0x1234, Dst: 0x5678}
)

const suiteSize = 1024

var (
	fullMAC = [6]byte{255, 255, 255, 255, 255, 255}
	fullIP4 = [4]byte{255, 255, 255, 255}
	fullIP6 = [16]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}
	fullTU  = TCPUDPFilter{DstPort: 0xffff, SrcPort: 0xffff}
)

func suiteEthSpec(etherType uint16) Spec {
	return EthSpec{
		Val:  EthFilter{DstMAC: suiteDstMAC, SrcMAC: suiteSrcMAC, EtherType: etherType},
		Mask: EthFilter{DstMAC: fullMAC, SrcMAC: fullMAC, EtherType: 0xffff},
	}
}

func suiteIPv4Spec(proto uint8) Spec {
	return IPv4ExtSpec{
		Val:  IPv4ExtFilter{SrcIP: suiteIPv4.Src.As4(), DstIP: suiteIPv4.Dst.As4(), Proto: proto},
		Mask: IPv4ExtFilter{SrcIP: fullIP4, DstIP: fullIP4, Proto: 0xff},
	}
}

func suiteIPv6Spec(next uint8) Spec {
	return IPv6Spec{
		Val:  IPv6Filter{SrcIP: suiteIPv6.Src.As16(), DstIP: suiteIPv6.Dst.As16(), NextHdr: next},
		Mask: IPv6Filter{SrcIP: fullIP6, DstIP: fullIP6, NextHdr: 0xff},
	}
}

var suitePorts = TCPUDPFilter{DstPort: 0x5678, SrcPort: 0x1234}

// with is the layer with one thing changed.
func with[T any](layer T, change func(*T)) T {
	change(&layer)
	return layer
}

// This is the whole of test_flow.py: for each of its five flows the matching traffic is counted to
// the packet and the byte. Beyond the original, frames that differ in one field of one spec must
// not count.
func TestSpecsCountExactlyTheirTraffic(t *testing.T) {
	wire := newWire(t)
	other4, other6 := netip.MustParseAddr("3.3.3.3"), netip.MustParseAddr("b0b1::1")
	for _, c := range []struct {
		name   string // of the original
		specs  []Spec
		match  []frame.Layer
		misses [][]frame.Layer
	}{
		{"eth_spec_flow_traffic", []Spec{suiteEthSpec(frame.TypeIPv4)}, []frame.Layer{suiteEth, suiteIPv4, suiteUDP}, [][]frame.Layer{
			{with(suiteEth, func(e *frame.Eth) { e.Dst[5]++ }), suiteIPv4, suiteUDP},
			{with(suiteEth, func(e *frame.Eth) { e.Src[0] += 4 }), suiteIPv4, suiteUDP},
			{suiteEth, suiteIPv6, suiteUDP},
		}},
		{"ipv4_spec_flow_traffic", []Spec{suiteIPv4Spec(17)}, []frame.Layer{suiteEth, suiteIPv4, suiteUDP}, [][]frame.Layer{
			{suiteEth, with(suiteIPv4, func(p *frame.IPv4) { p.Src = other4 }), suiteUDP},
			{suiteEth, with(suiteIPv4, func(p *frame.IPv4) { p.Dst = other4 }), suiteUDP},
			{suiteEth, suiteIPv4, suiteTCP},
			{suiteEth, suiteIPv6, suiteUDP},
		}},
		{"ipv6_spec_flow_traffic", []Spec{suiteEthSpec(frame.TypeIPv6), suiteIPv6Spec(17)}, []frame.Layer{suiteEth, suiteIPv6, suiteUDP}, [][]frame.Layer{
			{suiteEth, with(suiteIPv6, func(p *frame.IPv6) { p.Src = other6 }), suiteUDP},
			{suiteEth, with(suiteIPv6, func(p *frame.IPv6) { p.Dst = other6 }), suiteUDP},
			{suiteEth, suiteIPv6, suiteTCP},
			{suiteEth, suiteIPv4, suiteUDP},
		}},
		{"udp_spec_flow_traffic", []Spec{suiteEthSpec(frame.TypeIPv4), suiteIPv4Spec(17), UDPSpec{Val: suitePorts, Mask: fullTU}}, []frame.Layer{suiteEth, suiteIPv4, suiteUDP}, [][]frame.Layer{
			{suiteEth, suiteIPv4, frame.UDP{Src: 0x1234, Dst: 0x5679}},
			{suiteEth, suiteIPv4, frame.UDP{Src: 0x1235, Dst: 0x5678}},
			{suiteEth, suiteIPv4, suiteTCP},
		}},
		{"tcp_spec_flow_traffic", []Spec{suiteEthSpec(frame.TypeIPv6), suiteIPv6Spec(6), TCPSpec{Val: suitePorts, Mask: fullTU}}, []frame.Layer{suiteEth, suiteIPv6, suiteTCP}, [][]frame.Layer{
			{suiteEth, suiteIPv6, frame.TCP{Src: 0x1234, Dst: 0x5679}},
			{suiteEth, suiteIPv6, frame.TCP{Src: 0x1235, Dst: 0x5678}},
			{suiteEth, suiteIPv6, suiteUDP},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, wire)
			n := b.counters(both...)
			b.flow(n, c.specs...)
			for i := range uint64(iters) {
				b.send(frame.Sized(suiteSize, c.match...), 1)
				b.wants(n, i+1, (i+1)*suiteSize)
			}
			for _, miss := range c.misses {
				b.send(frame.Sized(suiteSize, miss...), 3)
			}
			b.wants(n, iters, iters*suiteSize)
		})
	}
}

// This is test_counter_qp_flow.
func TestFlowCounterEqualsTheSentPackets(t *testing.T) {
	b := newBench(t, newWire(t))
	n := b.counters(both...)
	b.flowAttr(FlowAttr{Specs: []Spec{suiteEthSpec(frame.TypeIPv4), CountSpec{Counters: n}}})
	b.send(frame.Sized(suiteSize, suiteEth, suiteIPv4, suiteUDP), iters)
	b.wants(n, iters, iters*suiteSize)
}

// This is test_counters_bulk_flow: after step i the first i of four counters show the number of
// rounds, and the others 0. (A bulk needs DevX; here the counters are four objects.)
func TestCountersCountOnlyTheirOwnFlows(t *testing.T) {
	b := newBench(t, newWire(t))
	frames := make([][]byte, 4)
	all := make([]*Counters, len(frames))
	for i := range frames {
		all[i] = b.counters(both...)
		ports := TCPUDPFilter{DstPort: uint16(1000 + i)}
		b.flow(all[i], suiteEthSpec(frame.TypeIPv4), UDPSpec{Val: ports, Mask: TCPUDPFilter{DstPort: 0xffff}})
		frames[i] = frame.Sized(suiteSize, suiteEth, suiteIPv4, frame.UDP{Src: 1, Dst: ports.DstPort})
	}
	for step := range frames {
		b.send(frames[step], iters)
		for i, n := range all {
			want := uint64(0)
			if i <= step {
				want = iters
			}
			b.wants(n, want, want*suiteSize)
		}
	}
}

// This is test_tbl_drop_action: half of the rounds meet a rule that drops. Its counter is 0 before,
// and exactly the number of dropped packets after. The rule behind it counts no dropped packet.
func TestDropRuleCountsTheDroppedPackets(t *testing.T) {
	b := newBench(t, newWire(t))
	dropped, passed := b.counters(both...), b.counters(both...)
	smac := func(mac byte) EthSpec {
		s := EthSpec{Val: EthFilter{SrcMAC: suiteSrcMAC}, Mask: EthFilter{SrcMAC: fullMAC}}
		s.Val.SrcMAC[5] = mac
		return s
	}
	b.flowAttr(FlowAttr{Priority: 0, Specs: []Spec{smac(1), DropSpec{}, CountSpec{Counters: dropped}}})
	b.flowAttr(FlowAttr{Priority: 1, Specs: []Spec{EthSpec{Val: EthFilter{DstMAC: suiteDstMAC}, Mask: EthFilter{DstMAC: fullMAC}}, CountSpec{Counters: passed}}})
	send := func(mac byte) {
		b.send(frame.Sized(suiteSize, with(suiteEth, func(e *frame.Eth) { e.Src[5] = mac }), suiteIPv4, suiteUDP), iters/2)
	}
	send(2)
	b.wants(dropped, 0, 0)
	b.wants(passed, iters/2, iters/2*suiteSize)
	send(1)
	b.wants(dropped, iters/2, iters/2*suiteSize)
	b.wants(passed, iters/2, iters/2*suiteSize)
}

// This is test_tbl_reuse_action_and_matcher, with two rules.
func TestSharedCounterAddsUpItsRules(t *testing.T) {
	b := newBench(t, newWire(t))
	n := b.counters(both...)
	for _, ip := range []string{"1.1.1.1", "1.1.1.2"} {
		b.flow(n, IPv4Spec{Val: IPv4Filter{SrcIP: frame.Addr(ip).As4()}, Mask: IPv4Filter{SrcIP: fullIP4}})
	}
	for i := range iters {
		src := frame.Addr([]string{"1.1.1.1", "1.1.1.2"}[i%2])
		b.send(frame.Sized(suiteSize, suiteEth, with(suiteIPv4, func(p *frame.IPv4) { p.Src = src }), suiteUDP), 1)
	}
	b.wants(n, iters, iters*suiteSize)
}

// This is the sampler's test of test_mlx5_dr.py.
func TestDontTrapRuleAndTheNextRuleBothCount(t *testing.T) {
	b := newBench(t, newWire(t))
	sampled, all := b.counters(both...), b.counters(both...)
	b.flowAttr(FlowAttr{Priority: 0, Flags: FlowDontTrap, Specs: []Spec{suiteEthSpec(frame.TypeIPv4), CountSpec{Counters: sampled}}})
	b.flowAttr(FlowAttr{Priority: 1, Specs: []Spec{suiteEthSpec(frame.TypeIPv4), CountSpec{Counters: all}}})
	b.send(frame.Sized(suiteSize, suiteEth, suiteIPv4, suiteUDP), iters)
	b.wants(sampled, iters, iters*suiteSize)
	b.wants(all, iters, iters*suiteSize)
}

// This is test_priority_flow_rdma_transport_domain_traffic, outside of this domain. When the rule
// with the lower number is closed, the other one takes the packets.
func TestLowerPriorityNumberTakesThePackets(t *testing.T) {
	b := newBench(t, newWire(t))
	low, high := b.counters(both...), b.counters(both...)
	b.flowAttr(FlowAttr{Priority: 3, Specs: []Spec{suiteEthSpec(frame.TypeIPv4), CountSpec{Counters: low}}})
	first := b.flowAttr(FlowAttr{Priority: 2, Specs: []Spec{suiteEthSpec(frame.TypeIPv4), CountSpec{Counters: high}}})
	b.send(frame.Sized(suiteSize, suiteEth, suiteIPv4, suiteUDP), iters)
	b.wants(high, iters, iters*suiteSize)
	b.wants(low, 0, 0)
	b.check(first.Close())
	b.send(frame.Sized(suiteSize, suiteEth, suiteIPv4, suiteUDP), iters)
	b.wants(low, iters, iters*suiteSize)
	// To be read, counters must be bound.
	b.flowAttr(FlowAttr{Priority: 4, Specs: []Spec{suiteEthSpec(frame.TypeIPv4), CountSpec{Counters: high}}})
	b.wants(high, iters, iters*suiteSize)
}

// This is the pattern of the BTH and Geneve tests. VXLAN is the only tunnel that verbs.h can match.
func TestCounterCountsHitsAndNoMisses(t *testing.T) {
	b := newBench(t, newWire(t))
	n := b.counters(both...)
	b.flow(n, UDPSpec{Val: TCPUDPFilter{DstPort: 4789}, Mask: TCPUDPFilter{DstPort: 0xffff}},
		VXLANSpec{Val: TunnelFilter{TunnelID: 42}, Mask: TunnelFilter{TunnelID: 0xffffff}},
		IPv4Spec{Inner: true, Val: IPv4Filter{DstIP: suiteIPv4.Dst.As4()}, Mask: IPv4Filter{DstIP: fullIP4}})
	inner := func(vni uint32, dst string) []byte {
		return frame.Sized(suiteSize, suiteEth, suiteIPv4, frame.UDP{Src: 1, Dst: 4789}, frame.VXLAN{VNI: vni},
			frame.Eth{Dst: suiteSrcMAC, Src: suiteDstMAC}, frame.IPv4{Src: frame.Addr("10.0.0.1"), Dst: frame.Addr(dst)}, suiteUDP)
	}
	b.send(inner(42, "2.2.2.2"), iters)
	b.wants(n, iters, iters*suiteSize)
	b.send(inner(43, "2.2.2.2"), iters)
	b.send(inner(42, "2.2.2.3"), iters)
	b.wants(n, iters, iters*suiteSize)
}

func TestEgressFlowCountsOnlySentPackets(t *testing.T) {
	b := newBench(t, newWire(t))
	out := b.counters(both...)
	b.flowAttr(FlowAttr{Flags: FlowEgress, Specs: []Spec{suiteEthSpec(frame.TypeIPv4), CountSpec{Counters: out}}})
	f := frame.Sized(suiteSize, suiteEth, suiteIPv4, suiteUDP)
	b.send(f, iters)
	b.wants(out, 0, 0)
	b.sendFrom(b.wire.Near, f, iters)
	b.wants(out, iters, iters*suiteSize)
}
