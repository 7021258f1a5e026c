package ibvtest_test

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// nicMatches translates a flow's match into the engine's terms: any of the returned matches. ok is
// false if the engine cannot express it: the differences that nic.h lists, and fragments that one
// bit does not tell apart.
func nicMatches(m flow.Match) (all []nicMatch, ok bool) {
	expanded, err := m.Expand()
	if err != nil {
		return nil, false
	}
	for _, e := range expanded {
		one := []nicMatch{{}}
		if !tunnelMatch(&one, &e) || !layerMatch(&one, &e, false) {
			return nil, false
		}
		all = append(all, one...)
	}
	return all, true
}

func tunnelMatch(all *[]nicMatch, m *flow.Match) bool {
	k := &(*all)[0]
	if v := m.VXLAN; v != nil && (v.VNI.Mask != 0 || v.Inner != nil) {
		k.Value.Tunnel, k.Mask.Tunnel = nicVXLAN, nicVXLAN
		k.Value.VNI, k.Mask.VNI = v.VNI.Value, v.VNI.Mask
		return v.Inner == nil || layerMatch(all, v.Inner, true)
	}
	if g := m.GRE; g != nil && (g.Key.Mask != 0 || g.Inner != nil) {
		k.Value.Tunnel, k.Mask.Tunnel = nicGRE, nicGRE
		k.Value.GREKey, k.Mask.GREKey = g.Key.Value, g.Key.Mask
		return g.Inner == nil || layerMatch(all, g.Inner, true)
	}
	return true
}

// layerMatch writes a match's headers into the outer or inner layer of all.
func layerMatch(all *[]nicMatch, m *flow.Match, inner bool) bool {
	if m.Incomplete || m.ARP != nil || m.SCTP != nil || m.AH != nil || m.IPIP != nil || m.Geneve != nil || m.GTPU != nil || m.MPLSUDP != nil {
		return false // no field of a rule asks for it
	}
	var v, mask nicLayer
	has := func(bits uint32) { v.Present |= bits; mask.Present |= bits }
	if e := m.Eth; e != nil {
		has(nicETH)
		v.DMAC, mask.DMAC, v.SMAC, mask.SMAC = e.Dst.Addr, e.Dst.Mask, e.Src.Addr, e.Src.Mask
		v.EtherType, mask.EtherType = e.Type.Value, e.Type.Mask
	}
	if m.Untagged {
		has(nicETH)
		mask.Present |= nicTAG
	}
	for i, tag := range m.VLAN {
		has([]uint32{nicTAG, nicTAG2}[i])
		v.TCI[i] = uint16(tag.PCP.Value)<<13 | uint16(tag.DEI.Value)<<12 | tag.ID.Value
		mask.TCI[i] = uint16(tag.PCP.Mask)<<13 | uint16(tag.DEI.Mask)<<12 | tag.ID.Mask
	}
	if p := m.IPv4; p != nil {
		has(nicIPV4)
		copy(v.Src[:], p.Src.Addr[:])
		copy(mask.Src[:], p.Src.Mask[:])
		copy(v.Dst[:], p.Dst.Addr[:])
		copy(mask.Dst[:], p.Dst.Mask[:])
		v.TOS, mask.TOS, v.TTL, mask.TTL = p.TOS.Value, p.TOS.Mask, p.TTL.Value, p.TTL.Mask
		v.Proto, mask.Proto = p.Proto.Value, p.Proto.Mask
		switch p.Fragment {
		case flow.FragmentNo:
			mask.Frag = 1
		case flow.FragmentYes:
			v.Frag, mask.Frag = 1, 1
		case flow.FragmentFirst, flow.FragmentLater:
			return false
		}
	}
	if p := m.IPv6; p != nil {
		if p.NextHeader.Mask != 0 || p.Fragment != flow.FragmentAny {
			return false
		}
		has(nicIPV6)
		v.Src, mask.Src, v.Dst, mask.Dst = p.Src.Addr, p.Src.Mask, p.Dst.Addr, p.Dst.Mask
		v.TOS, mask.TOS, v.TTL, mask.TTL = p.TrafficClass.Value, p.TrafficClass.Mask, p.HopLimit.Value, p.HopLimit.Mask
		v.FlowLabel, mask.FlowLabel = p.FlowLabel.Value, p.FlowLabel.Mask
	}
	ports := func(p *flow.Ports) {
		v.Sport, mask.Sport, v.Dport, mask.Dport = p.Src.Value, p.Src.Mask, p.Dst.Value, p.Dst.Mask
	}
	if m.TCP != nil {
		if m.TCP.Flags.Mask&^0x1ff != 0 {
			return false // the field has no reserved bits
		}
		has(nicTCP)
		ports(&m.TCP.Ports)
		v.TCPFlags, mask.TCPFlags = uint16(m.TCP.Flags.Value), uint16(m.TCP.Flags.Mask)
	}
	if m.ESP != nil {
		v.Proto, mask.Proto, v.SPI, mask.SPI = 50, 0xff, m.ESP.SPI.Value, m.ESP.SPI.Mask
	}
	if e := m.MPLS; e != nil {
		if inner {
			return false // in GRE the engine has labels of their own
		}
		has(nicMPLS)
		v.MPLS = e.Label.Value<<12 | uint32(e.TC.Value)<<9 | uint32(e.Bottom.Value)<<8 | uint32(e.TTL.Value)
		mask.MPLS = e.Label.Mask<<12 | uint32(e.TC.Mask)<<9 | uint32(e.Bottom.Mask)<<8 | uint32(e.TTL.Mask)
	}
	if m.UDP != nil {
		has(nicUDP)
		ports(m.UDP)
	}
	if m.GRE != nil {
		v.Proto, mask.Proto = 47, 0xff
	}
	put := func(a, b nicLayer) []nicMatch {
		out := slices.Clone(*all)
		for i := range out {
			if inner {
				out[i].Value.Inner, out[i].Mask.Inner = a, b
			} else {
				out[i].Value.Outer, out[i].Mask.Outer = a, b
			}
		}
		return out
	}
	if c := m.ICMP; c != nil {
		v.ICMPType, mask.ICMPType, v.ICMPCode, mask.ICMPCode = c.Type.Value, c.Type.Mask, c.Code.Value, c.Code.Mask
		return icmpMatch(all, v, mask, put)
	}
	*all = put(v, mask)
	return true
}

// icmpMatch is protocol 1 over IPv4, 58 over IPv6, or both where the match names neither.
func icmpMatch(all *[]nicMatch, v, mask nicLayer, put func(a, b nicLayer) []nicMatch) bool {
	var out []nicMatch
	for _, family := range []struct {
		bit   uint32
		proto uint8
	}{{nicIPV4, 1}, {nicIPV6, 58}} {
		other := uint32(nicIPV4|nicIPV6) &^ family.bit
		if v.Present&other != 0 {
			continue
		}
		a, b := v, mask
		a.Present, b.Present = a.Present|family.bit, b.Present|family.bit
		if a.Proto != family.proto&b.Proto {
			return false // flow asks for two protocols at once: matches nothing
		}
		a.Proto, b.Proto = family.proto, 0xff
		out = append(out, put(a, b)...)
	}
	*all = out
	return true
}
