//go:build cgo

package ibv

import (
	"testing"

	"pgregory.net/rapid"
)

// fewSpecs draws specs of few values, so that they agree, and contradict each other, often.
func fewSpecs(counters *Counters) *rapid.Generator[Spec] {
	u8 := func(t *rapid.T, name string, of ...uint8) uint8 { return rapid.SampledFrom(of).Draw(t, name) }
	return rapid.Custom(func(t *rapid.T) Spec {
		inner := rapid.Bool().Draw(t, "inner")
		rarely := func(name string) uint8 { return u8(t, name, 0, 0, 0, 0, 0, 0, 0, 1) }
		switch rapid.IntRange(0, 12).Draw(t, "type") {
		case 0:
			typ := rapid.SampledFrom([]uint16{0, 0x0800, 0x86dd, 0x0806}).Draw(t, "ether type")
			mask := rapid.SampledFrom([]uint16{0, 0xffff, 0xffff, 0xff00}).Draw(t, "mask")
			return EthSpec{inner, EthFilter{EtherType: typ}, EthFilter{EtherType: mask}}
		case 1:
			return IPv4Spec{Inner: inner}
		case 2:
			val := IPv4ExtFilter{Proto: u8(t, "proto", 6, 17, 47)}
			return IPv4ExtSpec{inner, val, IPv4ExtFilter{Proto: u8(t, "mask", 0, 0xff), TTL: rarely("ttl"), Flags: rarely("flags")}}
		case 3:
			val := IPv6Filter{NextHdr: u8(t, "next header", 6, 17, 47), FlowLabel: uint32(rarely("label")) << 20}
			return IPv6Spec{inner, val, IPv6Filter{NextHdr: u8(t, "mask", 0, 0xff), HopLimit: rarely("hop limit")}}
		case 4:
			return TCPSpec{Inner: inner}
		case 5:
			return UDPSpec{Inner: inner}
		case 6:
			return VXLANSpec{Val: TunnelFilter{uint32(rarely("vni")) << 24}}
		case 7:
			return GRESpec{Mask: GREFilter{CKSRes0Ver: uint16(rarely("flags"))}}
		case 8: // first of the layer: mlx5 lets the two contradict each other, the library does not
			return ESPSpec{Inner: inner, Mask: ESPFilter{Seq: 1}}
		case 9:
			return TagSpec{TagID: uint32(rarely("tag")) << 24}
		case 10:
			return DropSpec{}
		default:
			return CountSpec{counters}
		}
	})
}

// Different people wrote Check and the strict library from the same kernel source.
func TestFlowCheckAgreesWithTheLibrary(t *testing.T) {
	b := newBench(t, newWire(t))
	counters := b.counters(both...)
	taken, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		a := FlowAttr{
			Port: 1, Priority: rapid.SampledFrom([]uint16{0, 0, 0, 1, 15, 16}).Draw(t, "priority"),
			Flags: rapid.SampledFrom([]FlowFlags{0, 0, FlowDontTrap, FlowEgress, 8}).Draw(t, "flags"),
			Type:  rapid.SampledFrom([]FlowAttrType{FlowAttrNormal, FlowAttrNormal, FlowAttrNormal, FlowAttrAllDefault, FlowAttrMCDefault}).Draw(t, "type"),
		}
		if a.Type == FlowAttrNormal { // mlx5 has specs of its own for the others, and the library looks at them
			a.Specs = rapid.SliceOfN(fewSpecs(counters), 0, 5).Draw(t, "specs")
		}
		why := a.Check()
		f, err := b.qp.CreateFlow(a)
		if err == nil {
			taken++
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		} else {
			refused++
		}
		if (why == nil) != (err == nil) {
			t.Fatalf("the library says %v, Check %v", err, why)
		}
	})
	t.Logf("%d flows were taken, %d refused", taken, refused)
	if taken == 0 || refused == 0 {
		t.Error("the flows are all alike")
	}
}
