package xdp

import (
	"encoding/binary"
	"fmt"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// compile returns the rules of an entry as the tables have them: none if Alter has taken the flow out.
//
// If drops is false, the rules of a flow with action drop only count, because hardware drops its packets. On an interface where XDP
// counts the flow in a slot of its own (see CountApart) no device drops them, so there its rules drop whatever drops says.
func (b *Backend) compile(f backend.Placed, x *entry, drops bool) ([]xdp.Rule, error) {
	if x.left {
		return nil, nil
	}
	f.Order = x.order
	if len(x.apart) == 0 {
		return b.compileOn(f, x.counter, drops)
	}
	var out []xdp.Rule
	for _, i := range b.hooks.interfaces {
		counter := x.counter
		_, apart := x.apart[i.Name]
		if apart {
			counter = x.own[i.Name].ID
		}
		rules, err := b.compileOn(f.On(i.Name), counter, drops || apart)
		if err != nil {
			return nil, err
		}
		out = append(out, rules...)
	}
	return out, nil
}

func (b *Backend) compileOn(f backend.Placed, counter uint32, drops bool) ([]xdp.Rule, error) {
	if !drops {
		f.Action = flow.Count
	}
	rules, err := compile(f, counter, b.rules.Port)
	if err != nil {
		return nil, fmt.Errorf("flow %q: compiling: %w", f.Name, translate(err))
	}
	return rules, nil
}

// compile turns a flow into rules of package xdp: one for each alternative of its sets, and for each of its families. All of
// them count in one counter, at one place in the order. port returns the number by which the programs know an interface.
func compile(f backend.Placed, counter uint32, port func(ifname string) (uint16, error)) ([]xdp.Rule, error) {
	if err := f.Match.Validate(); err != nil {
		return nil, fmt.Errorf("compiling match: %w", err)
	}
	alternatives, err := f.Match.Alternatives()
	if err != nil {
		return nil, fmt.Errorf("compiling match: %w", err)
	}
	var common rule
	common.flag(xdp.FlagEgress, f.Direction == flow.Egress)
	if f.Interface != "" {
		n, err := port(f.Interface)
		if err != nil {
			return nil, err
		}
		common.Key.Out.Port, common.Mask.Out.Port = n, 0xffff
	}
	var out []xdp.Rule
	for _, alternative := range alternatives {
		for _, m := range families(alternative) {
			r := common
			r.outer(m)
			for _, r := range r.protocols(m) {
				out = append(out, xdp.Rule{
					Key: r.Key, Mask: r.Mask, Ports: r.Ports, Priority: f.Priority, Order: f.Order, Counter: counter, Drop: f.Action == flow.Drop,
				})
			}
		}
	}
	return out, nil
}

// countRules returns how many rules compile makes of a match. A match that compile refuses counts as one.
func countRules(m flow.Match) int {
	alternatives, err := m.Alternatives()
	if err != nil {
		return 1
	}
	n := 0
	for _, alternative := range alternatives {
		for _, m := range families(alternative) {
			n += max(1, len(m.IPIPProtocols()))
		}
	}
	return n
}

// protocols splits a rule of IP in IP by the protocol number, which says the version of IP inside.
func (r rule) protocols(m flow.Match) []rule {
	if m.IPIP == nil {
		return []rule{r}
	}
	var out []rule
	for _, n := range m.IPIPProtocols() {
		r.Key.Out.Proto, r.Mask.Out.Proto = n, 0xff
		out = append(out, r)
	}
	return out
}

// families splits a match of ICMP without a family into one of IPv4 and one of IPv6, because the protocol numbers differ.
func families(m flow.Match) []flow.Match {
	out := []flow.Match{m}
	if m.ICMP != nil && m.IPv4 == nil && m.IPv6 == nil {
		v4, v6 := m, m
		v4.IPv4, v6.IPv6 = &flow.IPv4{}, &flow.IPv6{}
		out = []flow.Match{v4, v6}
	}
	inner := m.Inner()
	if inner == nil {
		return out
	}
	var both []flow.Match
	for _, o := range out {
		for _, in := range families(*inner) {
			both = append(both, o.WithInner(in))
		}
	}
	return both
}

// rule is a key, its mask and the ranges of its ports, filled layer by layer.
type rule struct {
	Key, Mask xdp.Key
	Ports     [2]xdp.Ports
}

func (r *rule) flag(f xdp.Flags, on bool) { setFlag(&r.Key.Out, &r.Mask.Out, f, on) }

func (r *rule) outer(m flow.Match) {
	if port := m.TunnelPort(); port != 0 { // the port makes the packet one of the tunnel, whatever the udp clause says
		var udp flow.Ports
		if m.UDP != nil {
			udp = *m.UDP
		}
		udp.Dst = flow.Port{Value: port, Mask: 0xffff}
		m.UDP = &udp
	}
	headers(&r.Key.Out, &r.Mask.Out, &r.Ports[0], m)
	k, mask := &r.Key.Out, &r.Mask.Out
	if m.GRE == nil { // every other tunnel has the one flag
		number := tunnelNumber(m)
		if m.Inner() != nil || number.Mask != 0 {
			r.flag(xdp.FlagTunnel, true)
		}
		if number.Mask != 0 {
			binary.BigEndian.PutUint32(k.Tunnel[:], number.Value)
			binary.BigEndian.PutUint32(mask.Tunnel[:], number.Mask)
		}
	}
	if g := m.GRE; g != nil {
		k.Proto, mask.Proto = flow.ProtoGRE, 0xff
		if g.Inner != nil || g.Key.Mask != 0 {
			r.flag(xdp.FlagGRE, true)
		}
		if g.Key.Mask != 0 {
			r.flag(xdp.FlagGREKey, true)
			binary.BigEndian.PutUint32(k.Tunnel[:], g.Key.Value)
			binary.BigEndian.PutUint32(mask.Tunnel[:], g.Key.Mask)
		}
	}
	if in := m.Inner(); in != nil {
		headers(&r.Key.In, &r.Mask.In, &r.Ports[1], *in)
	}
}

// tunnelNumber returns what a match asks of the number in the header of a tunnel other than GRE, as a packet has it.
func tunnelNumber(m flow.Match) flow.Masked[uint32] {
	vni := func(n flow.Masked[uint32]) flow.Masked[uint32] { // the first three bytes of their word
		return flow.Masked[uint32]{Value: n.Value << 8, Mask: n.Mask << 8}
	}
	switch {
	case m.VXLAN != nil:
		return vni(m.VXLAN.VNI)
	case m.Geneve != nil:
		return vni(m.Geneve.VNI)
	case m.GTPU != nil:
		return m.GTPU.TEID
	case m.MPLSUDP != nil:
		e := &m.MPLSUDP.MPLS
		return flow.Masked[uint32]{
			Value: mplsEntry(e.Label.Value, e.TC.Value, e.Bottom.Value, e.TTL.Value),
			Mask:  mplsEntry(e.Label.Mask, e.TC.Mask, e.Bottom.Mask, e.TTL.Mask),
		}
	}
	return flow.Masked[uint32]{}
}

func setFlag(k, mask *xdp.Headers, f xdp.Flags, on bool) {
	mask.Flags |= f
	if on {
		k.Flags |= f
	}
}

// headers fills the outer or the inner headers, from Ethernet to ports.
func headers(k, mask *xdp.Headers, ranges *xdp.Ports, m flow.Match) {
	if m.Incomplete {
		setFlag(k, mask, xdp.FlagIncomplete, true)
	}
	if e := m.Eth; e != nil {
		setFlag(k, mask, xdp.FlagEth, true)
		k.EthSrc, mask.EthSrc = e.Src.Addr, e.Src.Mask
		k.EthDst, mask.EthDst = e.Dst.Addr, e.Dst.Mask
		binary.BigEndian.PutUint16(k.EthType[:], e.Type.Value)
		binary.BigEndian.PutUint16(mask.EthType[:], e.Type.Mask)
	}
	if m.Untagged {
		setFlag(k, mask, xdp.FlagEth, true)
		setFlag(k, mask, xdp.FlagTag1, false)
	}
	for i, v := range m.VLAN {
		setFlag(k, mask, []xdp.Flags{xdp.FlagTag1, xdp.FlagTag2}[i], true)
		binary.BigEndian.PutUint16(k.VLAN[i][:], tci(v.PCP.Value, v.DEI.Value, v.ID.Value))
		binary.BigEndian.PutUint16(mask.VLAN[i][:], tci(v.PCP.Mask, v.DEI.Mask, v.ID.Mask))
	}
	if e := m.MPLS; e != nil {
		setFlag(k, mask, xdp.FlagMPLS, true)
		binary.BigEndian.PutUint32(k.Tunnel[:], mplsEntry(e.Label.Value, e.TC.Value, e.Bottom.Value, e.TTL.Value))
		binary.BigEndian.PutUint32(mask.Tunnel[:], mplsEntry(e.Label.Mask, e.TC.Mask, e.Bottom.Mask, e.TTL.Mask))
	}
	if a := m.ARP; a != nil {
		arp(k, mask, a)
	}
	if ip := m.IPv4; ip != nil {
		ipv4(k, mask, ip)
	}
	if ip := m.IPv6; ip != nil {
		ipv6(k, mask, ip)
	}
	if m.TCP != nil {
		ports(k, mask, ranges, flow.ProtoTCP, &m.TCP.Ports)
		if f := m.TCP.Flags; f.Mask != 0 {
			setFlag(k, mask, xdp.FlagTCPFlags, true)
			k.TCPFlags, mask.TCPFlags = uint8(f.Value), uint8(f.Mask)
			k.TCPHigh, mask.TCPHigh = uint8(f.Value>>8), uint8(f.Mask>>8)
		}
	}
	if m.UDP != nil {
		ports(k, mask, ranges, flow.ProtoUDP, m.UDP)
	}
	if s := m.SCTP; s != nil {
		ports(k, mask, ranges, flow.ProtoSCTP, &s.Ports)
		if s.Tag.Mask != 0 {
			setFlag(k, mask, xdp.FlagL4, true)
			binary.BigEndian.PutUint32(k.Tunnel[:], s.Tag.Value)
			binary.BigEndian.PutUint32(mask.Tunnel[:], s.Tag.Mask)
		}
	}
	if m.AH != nil {
		ipsec(k, mask, flow.ProtoAH, m.AH.SPI)
	}
	if m.ESP != nil {
		ipsec(k, mask, flow.ProtoESP, m.ESP.SPI)
	}
	if i := m.ICMP; i != nil {
		k.Proto, mask.Proto = flow.ProtoICMP, 0xff
		if m.IPv6 != nil {
			k.Proto = flow.ProtoICMPv6
		}
		if i.Type.Mask|i.Code.Mask != 0 {
			setFlag(k, mask, xdp.FlagL4, true)
			k.L4[0], mask.L4[0] = i.Type.Value, i.Type.Mask
			k.L4[1], mask.L4[1] = i.Code.Value, i.Code.Mask
		}
	}
}

// mplsEntry returns an entry of a label stack (RFC 3032).
func mplsEntry(label uint32, tc, bottom, ttl uint8) uint32 {
	return label<<12 | uint32(tc)<<9 | uint32(bottom)<<8 | uint32(ttl)
}

func tci(pcp, dei uint8, id uint16) uint16 { return uint16(pcp)<<13 | uint16(dei)<<12 | id }

// arp fills the fields of ARP. Its EtherType tells them from those of IP, which have the same place.
func arp(k, mask *xdp.Headers, a *flow.ARP) {
	setFlag(k, mask, xdp.FlagEth, true)
	binary.BigEndian.PutUint16(k.EthType[:], flow.EtherARP)
	binary.BigEndian.PutUint16(mask.EthType[:], 0xffff)
	if *a == (flow.ARP{}) {
		return
	}
	setFlag(k, mask, xdp.FlagL4, true)
	binary.BigEndian.PutUint16(k.L4[:], a.Op.Value)
	binary.BigEndian.PutUint16(mask.L4[:], a.Op.Mask)
	copy(k.Addr[0:4], a.Sender.Addr[:])
	copy(mask.Addr[0:4], a.Sender.Mask[:])
	copy(k.Addr[4:8], a.Target.Addr[:])
	copy(mask.Addr[4:8], a.Target.Mask[:])
}

// ipsec fills the protocol of AH or ESP and its SPI.
func ipsec(k, mask *xdp.Headers, protocol uint8, spi flow.Masked[uint32]) {
	k.Proto, mask.Proto = protocol, 0xff
	if spi.Mask == 0 {
		return
	}
	setFlag(k, mask, xdp.FlagL4, true)
	binary.BigEndian.PutUint32(k.L4[:], spi.Value)
	binary.BigEndian.PutUint32(mask.L4[:], spi.Mask)
}

func ipv4(k, mask *xdp.Headers, ip *flow.IPv4) {
	setFlag(k, mask, xdp.FlagIPv4, true)
	copy(k.Addr[0:4], ip.Src.Addr[:])
	copy(mask.Addr[0:4], ip.Src.Mask[:])
	copy(k.Addr[4:8], ip.Dst.Addr[:])
	copy(mask.Addr[4:8], ip.Dst.Mask[:])
	k.Proto, mask.Proto = ip.Proto.Value, ip.Proto.Mask
	k.TOS, mask.TOS = ip.TOS.Value, ip.TOS.Mask
	k.TTL, mask.TTL = ip.TTL.Value, ip.TTL.Mask
	fragment(k, mask, ip.Fragment)
}

func fragment(k, mask *xdp.Headers, f flow.Fragment) {
	switch f {
	case flow.FragmentNo:
		setFlag(k, mask, xdp.FlagFrag, false)
	case flow.FragmentYes:
		setFlag(k, mask, xdp.FlagFrag, true)
	case flow.FragmentFirst:
		setFlag(k, mask, xdp.FlagFrag, true)
		setFlag(k, mask, xdp.FlagLater, false)
	case flow.FragmentLater:
		setFlag(k, mask, xdp.FlagFrag|xdp.FlagLater, true)
	}
}

func ipv6(k, mask *xdp.Headers, ip *flow.IPv6) {
	setFlag(k, mask, xdp.FlagIPv6, true)
	copy(k.Addr[0:16], ip.Src.Addr[:])
	copy(mask.Addr[0:16], ip.Src.Mask[:])
	copy(k.Addr[16:32], ip.Dst.Addr[:])
	copy(mask.Addr[16:32], ip.Dst.Mask[:])
	binary.BigEndian.PutUint32(k.Label[:], ip.FlowLabel.Value)
	binary.BigEndian.PutUint32(mask.Label[:], ip.FlowLabel.Mask)
	k.Next, mask.Next = ip.NextHeader.Value, ip.NextHeader.Mask
	k.TOS, mask.TOS = ip.TrafficClass.Value, ip.TrafficClass.Mask
	k.TTL, mask.TTL = ip.HopLimit.Value, ip.HopLimit.Mask
	fragment(k, mask, ip.Fragment)
}

func ports(k, mask *xdp.Headers, ranges *xdp.Ports, proto uint8, p *flow.Ports) {
	k.Proto, mask.Proto = proto, 0xff
	if p.Src.Mask|p.Dst.Mask|p.Src.Last|p.Dst.Last == 0 {
		return // without ports, the protocol alone decides: later fragments match too
	}
	setFlag(k, mask, xdp.FlagL4, true)
	port(k.L4[0:2], mask.L4[0:2], &ranges.Src, p.Src)
	port(k.L4[2:4], mask.L4[2:4], &ranges.Dst, p.Dst)
}

// port fills one port: a value under a mask, or a range. It turns an aligned range into a mask, because rules with ranges
// cannot be hashed.
func port(k, mask []byte, r *xdp.Range, p flow.Port) {
	if p.Last != 0 {
		if free := p.Value ^ p.Last; free&(free+1) == 0 && p.Value&free == 0 {
			p.Mask = ^free
		} else {
			*r = xdp.Range{First: p.Value, Last: p.Last}
			return
		}
	}
	binary.BigEndian.PutUint16(k, p.Value)
	binary.BigEndian.PutUint16(mask, p.Mask)
}
