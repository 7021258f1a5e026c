package rdma

import (
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
)

// devxParam translates a rule to struct fte_match_param: a value and its mask. Throughout this file, v points into the value
// and k to the same place in the mask.
func devxParam(m ruleMatch) (val, mask ibv.MatchParam) {
	devxOuter(&val, &mask, m)
	if m.inner != nil {
		devxInner(&val, &mask, *m.inner)
	}
	return val, mask
}

// devxOuter fills the fields of the outer headers and of the tunnel.
func devxOuter(val, mask *ibv.MatchParam, m ruleMatch) {
	devxHeaders(&val.Outer, &mask.Outer, m)

	v, k := &val.Misc, &mask.Misc
	if ip := m.IPv6; ip != nil {
		v.OuterIPv6FlowLabel, k.OuterIPv6FlowLabel = ip.FlowLabel.Value, ip.FlowLabel.Mask
	}
	devxTag(m, 1, outerSecondTag(v), outerSecondTag(k))
	if m.MPLS != nil {
		val.Misc2.OuterFirstMPLS, mask.Misc2.OuterFirstMPLS = m.mplsEntry()
	}
	if e := m.ESP; e != nil {
		v.OuterESPSPI, k.OuterESPSPI = e.SPI.Value, e.SPI.Mask
	}
	if x := m.VXLAN; x != nil {
		v.VXLANVNI, k.VXLANVNI = x.VNI.Value, x.VNI.Mask
	}
	if g := m.GRE; g != nil {
		p := m.greProtocol()
		v.GREProtocol, k.GREProtocol = p.Value, p.Mask
		if g.Key.Mask != 0 {
			v.GREKPresent, k.GREKPresent = 1, 1
			v.GREKey, k.GREKey = g.Key.Value, g.Key.Mask
		}
	}
	if i := m.ICMP; i != nil {
		v, k := &val.Misc3, &mask.Misc3
		if m.IPv4 != nil {
			v.ICMPType, k.ICMPType = i.Type.Value, i.Type.Mask
			v.ICMPCode, k.ICMPCode = i.Code.Value, i.Code.Mask
		} else {
			v.ICMPv6Type, k.ICMPv6Type = i.Type.Value, i.Type.Mask
			v.ICMPv6Code, k.ICMPv6Code = i.Code.Value, i.Code.Mask
		}
	}
}

// devxInner fills the fields of the headers inside a tunnel.
func devxInner(val, mask *ibv.MatchParam, m ruleMatch) {
	devxHeaders(&val.Inner, &mask.Inner, m)

	v, k := &val.Misc, &mask.Misc
	if e := m.ESP; e != nil {
		v.InnerESPSPI, k.InnerESPSPI = e.SPI.Value, e.SPI.Mask
	}
	if ip := m.IPv6; ip != nil {
		v.InnerIPv6FlowLabel, k.InnerIPv6FlowLabel = ip.FlowLabel.Value, ip.FlowLabel.Mask
	}
	devxTag(m, 1, innerSecondTag(v), innerSecondTag(k))
}

func outerSecondTag(p *ibv.MatchMisc) tagFields {
	return tagFields{
		vid:  &p.OuterSecondVID,
		prio: &p.OuterSecondPrio,
		cfi:  &p.OuterSecondCFI,
		c:    &p.OuterSecondCVLANTag,
		s:    &p.OuterSecondSVLANTag,
	}
}

func innerSecondTag(p *ibv.MatchMisc) tagFields {
	return tagFields{
		vid:  &p.InnerSecondVID,
		prio: &p.InnerSecondPrio,
		cfi:  &p.InnerSecondCFI,
		c:    &p.InnerSecondCVLANTag,
		s:    &p.InnerSecondSVLANTag,
	}
}

func firstTag(p *ibv.MatchHeaders) tagFields {
	return tagFields{
		vid:  &p.FirstVID,
		prio: &p.FirstPrio,
		cfi:  &p.FirstCFI,
		c:    &p.CVLANTag,
		s:    &p.SVLANTag,
	}
}

// tagFields is where a parameter has the fields of one tag. c and s ask for the EtherType: C-tag or S-tag.
type tagFields struct {
	vid       *uint16
	prio, cfi *uint8
	c, s      *uint8
}

// devxTag fills in tag i, if the rule asks for it.
func devxTag(m ruleMatch, i int, v, k tagFields) {
	if i >= len(m.tags) {
		return
	}
	t := m.VLAN[i]
	*v.vid, *k.vid = t.ID.Value, t.ID.Mask
	*v.prio, *k.prio = t.PCP.Value, t.PCP.Mask
	*v.cfi, *k.cfi = t.DEI.Value, t.DEI.Mask
	if m.tags[i] == typeSTag {
		*v.s, *k.s = 1, 1
	} else {
		*v.c, *k.c = 1, 1
	}
}

// devxHeaders fills the outer or the inner headers, from Ethernet to ports.
func devxHeaders(v, k *ibv.MatchHeaders, m ruleMatch) {
	if e := m.Eth; e != nil {
		t := m.etherType()
		v.SMAC, k.SMAC = e.Src.Addr, e.Src.Mask
		v.DMAC, k.DMAC = e.Dst.Addr, e.Dst.Mask
		v.EtherType, k.EtherType = t.Value, t.Mask
	}
	devxTag(m, 0, firstTag(v), firstTag(k))
	if m.Untagged {
		k.CVLANTag = 1 // 0 under this mask: neither a C-tag nor an S-tag
	}

	var tos flow.Masked[uint8]
	if ip := m.IPv4; ip != nil {
		v.IPVersion, k.IPVersion = 4, 0xf
		copy(v.SrcIP[12:], ip.Src.Addr[:])
		copy(k.SrcIP[12:], ip.Src.Mask[:])
		copy(v.DstIP[12:], ip.Dst.Addr[:])
		copy(k.DstIP[12:], ip.Dst.Mask[:])
		tos = ip.TOS
		if ip.Fragment != flow.FragmentAny {
			k.Frag = 1
		}
		if ip.Fragment == flow.FragmentYes {
			v.Frag = 1
		}
	}
	if ip := m.IPv6; ip != nil {
		v.IPVersion, k.IPVersion = 6, 0xf
		v.SrcIP, k.SrcIP = ip.Src.Addr, ip.Src.Mask
		v.DstIP, k.DstIP = ip.Dst.Addr, ip.Dst.Mask
		tos = ip.TrafficClass
	}
	v.DSCP, k.DSCP = tos.Value>>2, tos.Mask>>2
	v.ECN, k.ECN = tos.Value&3, tos.Mask&3

	proto := m.protocol()
	v.IPProtocol, k.IPProtocol = proto.Value, proto.Mask
	if p := m.TCP; p != nil {
		v.TCPSPort, k.TCPSPort = p.Src.Value, p.Src.Mask
		v.TCPDPort, k.TCPDPort = p.Dst.Value, p.Dst.Mask
		v.TCPFlags, k.TCPFlags = uint16(p.Flags.Value), uint16(p.Flags.Mask)
	}
	if p := m.UDP; p != nil {
		v.UDPSPort, k.UDPSPort = p.Src.Value, p.Src.Mask
		v.UDPDPort, k.UDPDPort = p.Dst.Value, p.Dst.Mask
	}
}
