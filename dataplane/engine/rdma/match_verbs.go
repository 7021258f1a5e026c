package rdma

import (
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
)

// verbsSpecs returns the match specs of a rule, from the outermost header on. It always begins with an Ethernet spec, because
// libibverbs rejects a flow without any.
func verbsSpecs(m ruleMatch) []ibv.Spec {
	specs := append([]ibv.Spec{ethSpec(m, false)}, upperSpecs(m, false)...)
	if v := m.VXLAN; v != nil {
		specs = append(specs, ibv.VXLANSpec{Val: ibv.TunnelFilter{TunnelID: v.VNI.Value}, Mask: ibv.TunnelFilter{TunnelID: v.VNI.Mask}})
	}
	if p := m.greProtocol(); p.Mask != 0 {
		specs = append(specs, ibv.GRESpec{Val: ibv.GREFilter{Protocol: p.Value}, Mask: ibv.GREFilter{Protocol: p.Mask}})
	} else if m.GRE != nil && m.inner != nil {
		specs = append(specs, ibv.GRESpec{})
	}
	if in := m.inner; in != nil {
		if in.Eth != nil {
			specs = append(specs, ethSpec(*in, true))
		}
		specs = append(specs, upperSpecs(*in, true)...)
	}
	return specs
}

func ethSpec(m ruleMatch, inner bool) ibv.EthSpec {
	s := ibv.EthSpec{Inner: inner}
	if e := m.Eth; e != nil {
		t := m.etherType()
		s.Val = ibv.EthFilter{DstMAC: e.Dst.Addr, SrcMAC: e.Src.Addr, EtherType: t.Value}
		s.Mask = ibv.EthFilter{DstMAC: e.Dst.Mask, SrcMAC: e.Src.Mask, EtherType: t.Mask}
	}
	return s
}

// upperSpecs returns the specs of IP and of the headers above.
func upperSpecs(m ruleMatch, inner bool) []ibv.Spec {
	var specs []ibv.Spec
	proto := m.protocol()
	if ip := m.IPv4; ip != nil {
		specs = append(specs, ibv.IPv4ExtSpec{
			Inner: inner,
			Val:   ibv.IPv4ExtFilter{SrcIP: ip.Src.Addr, DstIP: ip.Dst.Addr, Proto: proto.Value, TOS: ip.TOS.Value},
			Mask:  ibv.IPv4ExtFilter{SrcIP: ip.Src.Mask, DstIP: ip.Dst.Mask, Proto: proto.Mask, TOS: ip.TOS.Mask},
		})
	}
	if ip := m.IPv6; ip != nil {
		specs = append(specs, ibv.IPv6Spec{
			Inner: inner,
			Val: ibv.IPv6Filter{SrcIP: ip.Src.Addr, DstIP: ip.Dst.Addr, FlowLabel: ip.FlowLabel.Value,
				NextHdr: proto.Value, TrafficClass: ip.TrafficClass.Value},
			Mask: ibv.IPv6Filter{SrcIP: ip.Src.Mask, DstIP: ip.Dst.Mask, FlowLabel: ip.FlowLabel.Mask,
				NextHdr: proto.Mask, TrafficClass: ip.TrafficClass.Mask},
		})
	}
	if m.MPLS != nil {
		val, mask := m.mplsEntry()
		specs = append(specs, ibv.MPLSSpec{Inner: inner, Val: ibv.MPLSFilter{Label: val}, Mask: ibv.MPLSFilter{Label: mask}})
	}
	if e := m.ESP; e != nil && e.SPI.Mask != 0 {
		specs = append(specs, ibv.ESPSpec{Inner: inner, Val: ibv.ESPFilter{SPI: e.SPI.Value}, Mask: ibv.ESPFilter{SPI: e.SPI.Mask}})
	}
	if p := m.TCP; p != nil {
		val, mask := portFilter(p.Ports)
		specs = append(specs, ibv.TCPSpec{Inner: inner, Val: val, Mask: mask})
	}
	if p := m.UDP; p != nil {
		val, mask := portFilter(*p)
		specs = append(specs, ibv.UDPSpec{Inner: inner, Val: val, Mask: mask})
	}
	return specs
}

func portFilter(p flow.Ports) (val, mask ibv.TCPUDPFilter) {
	return ibv.TCPUDPFilter{SrcPort: p.Src.Value, DstPort: p.Dst.Value}, ibv.TCPUDPFilter{SrcPort: p.Src.Mask, DstPort: p.Dst.Mask}
}
