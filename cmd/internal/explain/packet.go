package explain

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/oracle"
)

// hexOffset matches the offset at the beginning of a line of a hex dump.
var hexOffset = regexp.MustCompile(`(?m)^\s*(0x)?[0-9a-fA-F]{4,8}:\s`)

// ParseHex parses a packet in hex. It ignores blanks, colons, and the offsets of a dump such as tcpdump -xx prints. ok is
// false if the text is not hex.
func ParseHex(text string) (b []byte, ok bool) {
	text = hexOffset.ReplaceAllString(text, "")
	text = strings.TrimPrefix(strings.Join(strings.Fields(text), ""), "0x")
	b, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(b) == 0 {
		return nil, false
	}
	return b, true
}

// Build returns a frame with the fields of m. Other fields get common values: addresses for documentation, TTL 64, source
// port 40000, destination port 9. Each field of m must have exactly one possible value, or Build returns an error that
// names it.
func Build(m flow.Match) ([]byte, error) {
	if m.Incomplete {
		return nil, fmt.Errorf("%w: a packet with incomplete headers is given in hex", ErrPacket)
	}
	b := frame.Build(append(layersOf(m, true), frame.Payload(18))...)
	got := oracle.Describe(oracle.Packet{Frame: b})
	for _, t := range m.Terms() {
		if t.Untagged || t.Inner() != nil && t.Inner().Untagged {
			continue // we built no tag, and Describe has no word for a missing one
		}
		if has := t.ValuesIn(got); has.String() != t.String() {
			return nil, fmt.Errorf("%w: %q is not one value, or cannot be built (the packet would have %q); write one value, or give the packet in hex", ErrPacket, t, has)
		}
	}
	return b, nil
}

// layersOf returns the layers of a packet with the fields of m. An inner packet gets an Ethernet header only if m names
// one.
func layersOf(m flow.Match, outer bool) (layers []frame.Layer) {
	v4, v6 := ipOf(m)
	link := linkOf(m, v4 != nil || v6 != nil)
	if !outer && m.Eth == nil && len(m.VLAN) == 0 && !m.Untagged && m.ARP == nil {
		link = nil // GRE and others may carry IP alone; VXLAN adds Ethernet
	}
	if e := m.MPLS; e != nil {
		return append(link, frame.MPLS{Label: or(e.Label, 16), TC: e.TC.Value, TTL: e.TTL.Value})
	}
	if m.ARP != nil || v4 == nil && v6 == nil && m.Eth != nil && m.Eth.Type.Value == flow.EtherARP {
		return append(link, arp(cmp.Or(m.ARP, new(flow.ARP))))
	}
	layers = append(link, network(v4, v6, m)...)
	return append(layers, upper(m, v6 != nil, laterFragment(v4, v6))...)
}

// ipOf returns the IP header named or implied by m. A header above IP implies IPv4, unless the EtherType says IPv6.
func ipOf(m flow.Match) (*flow.IPv4, *flow.IPv6) {
	aboveIP := m.TCP != nil || m.UDP != nil || m.SCTP != nil || m.ICMP != nil || m.ESP != nil || m.AH != nil || m.GRE != nil || m.IPIP != nil || m.TunnelPort() != 0
	switch {
	case m.IPv4 != nil || m.IPv6 != nil || !aboveIP:
		return m.IPv4, m.IPv6
	case m.Eth != nil && m.Eth.Type.Value == frame.TypeIPv6:
		return nil, new(flow.IPv6)
	}
	return new(flow.IPv4), nil
}

// linkOf returns the Ethernet header and the VLAN tags. An EtherType named by m goes into the last of them. For IP it is
// left to package frame, which sets it.
func linkOf(m flow.Match, ip bool) []frame.Layer {
	eth := frame.Eth{Src: [6]byte{2, 0, 0, 0, 0, 1}, Dst: [6]byte{2, 0, 0, 0, 0, 2}}
	if e := m.Eth; e != nil {
		set(&eth.Src, e.Src.Addr, e.Src.Mask)
		set(&eth.Dst, e.Dst.Addr, e.Dst.Mask)
		if !ip && e.Type.Mask != 0 {
			eth.Type = e.Type.Value
		}
	}

	var tags []frame.Layer
	for i, v := range m.VLAN {
		tag := frame.VLAN{ID: or(v.ID, 1), PCP: v.PCP.Value, DEI: v.DEI.Value == 1}
		if i == len(m.VLAN)-1 {
			tag.Type = eth.Type
			eth.Type = 0
		}
		tags = append(tags, tag)
	}
	return append([]frame.Layer{eth}, tags...)
}

// laterFragment reports whether the packet is a fragment without the headers above IP.
func laterFragment(v4 *flow.IPv4, v6 *flow.IPv6) bool {
	return v4 != nil && v4.Fragment == flow.FragmentLater || v6 != nil && v6.Fragment == flow.FragmentLater
}

// network returns the IP header, with an extension header if the match names one.
func network(v4 *flow.IPv4, v6 *flow.IPv6, m flow.Match) []frame.Layer {
	switch {
	case v4 != nil:
		return []frame.Layer{ipv4(v4, m)}
	case v6 != nil:
		return ipv6(v6, m)
	}
	return nil
}

func arp(a *flow.ARP) frame.ARP {
	p := frame.ARP{
		Op:        or(a.Op, 1),
		SenderMAC: [6]byte{2, 0, 0, 0, 0, 1},
		Sender:    netip.MustParseAddr("192.0.2.1"),
		Target:    netip.MustParseAddr("192.0.2.2"),
	}
	if a.Sender.Mask != [4]byte{} {
		p.Sender = netip.AddrFrom4(a.Sender.Addr)
	}
	if a.Target.Mask != [4]byte{} {
		p.Target = netip.AddrFrom4(a.Target.Addr)
	}
	return p
}

func ipv4(v4 *flow.IPv4, m flow.Match) frame.IPv4 {
	ip := frame.IPv4{
		Src:   netip.MustParseAddr("192.0.2.1"),
		Dst:   netip.MustParseAddr("192.0.2.2"),
		Proto: v4.Proto.Value,
		TOS:   v4.TOS.Value,
		TTL:   v4.TTL.Value,
	}
	if v4.Src.Mask != [4]byte{} {
		ip.Src = netip.AddrFrom4(v4.Src.Addr)
	}
	if v4.Dst.Mask != [4]byte{} {
		ip.Dst = netip.AddrFrom4(v4.Dst.Addr)
	}
	switch v4.Fragment {
	case flow.FragmentFirst:
		ip.MF = true
	case flow.FragmentLater:
		ip.Offset = 1480
		if ip.Proto == 0 {
			ip.Proto = protocol(m)
		}
	}
	return ip
}

func ipv6(v6 *flow.IPv6, m flow.Match) []frame.Layer {
	ip := frame.IPv6{
		Src:          netip.MustParseAddr("2001:db8::1"),
		Dst:          netip.MustParseAddr("2001:db8::2"),
		TrafficClass: v6.TrafficClass.Value,
		FlowLabel:    v6.FlowLabel.Value,
		HopLimit:     v6.HopLimit.Value,
	}
	if v6.Src.Mask != [16]byte{} {
		ip.Src = netip.AddrFrom16(v6.Src.Addr)
	}
	if v6.Dst.Mask != [16]byte{} {
		ip.Dst = netip.AddrFrom16(v6.Dst.Addr)
	}
	switch v6.Fragment {
	case flow.FragmentFirst:
		return []frame.Layer{ip, fragment6(m, 0, true)}
	case flow.FragmentLater:
		return []frame.Layer{ip, fragment6(m, 1480, false)}
	}

	next := v6.NextHeader.Value
	if v6.NextHeader.Mask == 0 || next == protocol(m) {
		return []frame.Layer{ip}
	}
	switch next {
	case frame.HopByHop, frame.Routing, frame.AH, frame.Destination, frame.Mobility, frame.HIP, frame.Shim6:
		return []frame.Layer{ip, frame.Ext{Type: next}}
	case frame.Fragment:
		return []frame.Layer{ip, frame.FragmentExt(0, false, 1)}
	}
	ip.NextHeader = next
	return []frame.Layer{ip}
}

func fragment6(m flow.Match, offset int, more bool) frame.Ext {
	x := frame.FragmentExt(offset, more, 1)
	if offset > 0 {
		x.Next = protocol(m)
	}
	return x
}

// protocol returns the number of the protocol above IP named by the match, or 0.
func protocol(m flow.Match) uint8 {
	switch {
	case m.TCP != nil:
		return flow.ProtoTCP
	case m.UDP != nil, m.TunnelPort() != 0:
		return flow.ProtoUDP
	case m.ICMP != nil && m.IPv6 != nil:
		return flow.ProtoICMPv6
	case m.ICMP != nil:
		return flow.ProtoICMP
	case m.GRE != nil:
		return flow.ProtoGRE
	case m.ESP != nil:
		return flow.ProtoESP
	case m.AH != nil:
		return flow.ProtoAH
	case m.SCTP != nil:
		return flow.ProtoSCTP
	case m.IPIP != nil:
		return protocolOfIPIP(m)
	}
	return 0
}

// protocolOfIPIP returns the protocol number of IP in IP: of IPv4 inside, unless m asks for the other.
func protocolOfIPIP(m flow.Match) uint8 {
	numbers := m.IPIPProtocols()
	if m.IPv6 != nil && slices.Contains(numbers, m.IPv6.NextHeader.Value) {
		return m.IPv6.NextHeader.Value
	}
	if len(numbers) == 0 {
		return flow.ProtoIPIP
	}
	return numbers[0]
}

// upper returns the headers above IP. A later fragment has none.
func upper(m flow.Match, v6, later bool) []frame.Layer {
	switch {
	case later:
	case m.TCP != nil:
		return []frame.Layer{frame.TCP{Src: port(m.TCP.Src, 40000), Dst: port(m.TCP.Dst, 9), Flags: uint16(m.TCP.Flags.Value)}}
	case m.TunnelPort() != 0:
		udp := frame.UDP{Src: 40000, Dst: m.TunnelPort(), NoSum: true}
		if m.UDP != nil {
			udp.Src = port(m.UDP.Src, 40000)
		}
		return append([]frame.Layer{udp}, overUDP(m)...)
	case m.IPIP != nil:
		return innerIP(m)
	case m.UDP != nil:
		return []frame.Layer{frame.UDP{Src: port(m.UDP.Src, 40000), Dst: port(m.UDP.Dst, 9)}}
	case m.ICMP != nil && v6:
		return []frame.Layer{frame.ICMPv6{Type: or(m.ICMP.Type, frame.EchoRequestV6), Code: m.ICMP.Code.Value}}
	case m.ICMP != nil:
		return []frame.Layer{frame.ICMP{Type: or(m.ICMP.Type, frame.EchoRequest), Code: m.ICMP.Code.Value}}
	case m.AH != nil:
		return []frame.Layer{frame.AuthHeader{SPI: or(m.AH.SPI, 256), Seq: 1}}
	case m.SCTP != nil:
		return []frame.Layer{frame.SCTP{Src: port(m.SCTP.Src, 40000), Dst: port(m.SCTP.Dst, 9), Tag: or(m.SCTP.Tag, 1)}}
	case m.ESP != nil:
		return []frame.Layer{frame.ESP{SPI: or(m.ESP.SPI, 256), Seq: 1}}
	case m.GRE != nil:
		gre := frame.GRE{}
		if m.GRE.Key.Mask != 0 {
			gre.Key = &m.GRE.Key.Value
		}
		var in []frame.Layer
		if m.GRE.Inner != nil {
			in = layersOf(*m.GRE.Inner, false)
		}
		return append([]frame.Layer{gre}, in...)
	}
	return nil
}

// overUDP returns the header of a tunnel over UDP, and the packet inside.
func overUDP(m flow.Match) []frame.Layer {
	eth := []frame.Layer{frame.Eth{Src: [6]byte{2, 0, 0, 0, 0, 3}, Dst: [6]byte{2, 0, 0, 0, 0, 4}}}
	switch {
	case m.VXLAN != nil:
		if m.VXLAN.Inner != nil {
			eth = layersOf(*m.VXLAN.Inner, true)
		}
		return append([]frame.Layer{frame.VXLAN{VNI: m.VXLAN.VNI.Value}}, eth...)
	case m.Geneve != nil:
		if m.Geneve.Inner != nil {
			eth = layersOf(*m.Geneve.Inner, false)
		}
		return append([]frame.Layer{frame.Geneve{VNI: m.Geneve.VNI.Value}}, eth...)
	case m.GTPU != nil:
		return append([]frame.Layer{frame.GTPU{TEID: m.GTPU.TEID.Value}}, innerIP(m)...)
	}
	e := &m.MPLSUDP.MPLS
	first := frame.MPLS{Label: or(e.Label, 16), TC: e.TC.Value, TTL: e.TTL.Value}
	return append([]frame.Layer{first}, innerIP(m)...)
}

// innerIP returns the packet inside a tunnel that carries IP alone: of IPv4, unless m says IPv6.
func innerIP(m flow.Match) []frame.Layer {
	in := flow.Match{}
	if m.Inner() != nil {
		in = *m.Inner()
	}
	if v4, v6 := ipOf(in); v4 == nil && v6 == nil {
		in.IPv4 = new(flow.IPv4)
		if protocol(m) == flow.ProtoIPv6 {
			in.IPv4, in.IPv6 = nil, new(flow.IPv6)
		}
	}
	return layersOf(in, false)
}

// set copies an address if the match names one: it has a mask then.
func set(to *[6]byte, addr, mask [6]byte) {
	if mask != [6]byte{} {
		*to = addr
	}
}

// or returns the value of a field, or the common one if the match does not name the field.
func or[T uint8 | uint16 | uint32](f flow.Masked[T], common T) T {
	if f.Mask == 0 {
		return common
	}
	return f.Value
}

// port is or for a port.
func port(p flow.Port, common uint16) uint16 {
	if p.Mask == 0 && p.Last == 0 {
		return common
	}
	return p.Value
}
