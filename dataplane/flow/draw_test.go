package flow_test

import (
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// drawMatch draws any match that validates: every layer, every mask, sets.
func drawMatch(t *rapid.T) flow.Match { return flow.Canonical(drawAsWritten(t)) }

// drawAsWritten draws a match whose sets may be in any order and have values that others contain.
func drawAsWritten(t *rapid.T) flow.Match {
	return rapid.Custom(func(t *rapid.T) flow.Match { return match(t, true) }).
		Filter(func(m flow.Match) bool { return m.Validate() == nil }).Draw(t, "match")
}

func match(t *rapid.T, outer bool) (m flow.Match) {
	has := func(what string) bool { return rapid.Bool().Draw(t, what) }
	if has("eth") {
		m.Eth = &flow.Eth{Type: masked[uint16](t, 16)}
		bytes(t, m.Eth.Src.Addr[:], m.Eth.Src.Mask[:])
		bytes(t, m.Eth.Dst.Addr[:], m.Eth.Dst.Mask[:])
	}
	for range rapid.IntRange(0, 2).Draw(t, "tags") {
		m.VLAN = append(m.VLAN, flow.VLAN{ID: masked[uint16](t, 12), PCP: masked[uint8](t, 3), DEI: masked[uint8](t, 1)})
	}
	m.Untagged = has("untagged")
	switch rapid.IntRange(0, 2).Draw(t, "ip") {
	case 1:
		m.IPv4 = &flow.IPv4{Proto: masked[uint8](t, 8), TOS: masked[uint8](t, 8), TTL: masked[uint8](t, 8), Fragment: flow.Fragment(rapid.IntRange(0, 4).Draw(t, "frag"))}
		bytes(t, m.IPv4.Src.Addr[:], m.IPv4.Src.Mask[:])
		bytes(t, m.IPv4.Dst.Addr[:], m.IPv4.Dst.Mask[:])
	case 2:
		m.IPv6 = &flow.IPv6{FlowLabel: masked[uint32](t, 20), NextHeader: masked[uint8](t, 8), TrafficClass: masked[uint8](t, 8), HopLimit: masked[uint8](t, 8), Fragment: flow.Fragment(rapid.IntRange(0, 4).Draw(t, "frag"))}
		bytes(t, m.IPv6.Src.Addr[:], m.IPv6.Src.Mask[:])
		bytes(t, m.IPv6.Dst.Addr[:], m.IPv6.Dst.Mask[:])
	}
	upper := rapid.IntRange(0, 18).Draw(t, "upper")
	if !outer && (upper > 3 && upper < 7 || upper > 10 && upper < 16) {
		upper = 0
	}
	switch upper {
	case 1:
		m.TCP = &flow.TCP{Ports: *ports(t), Flags: flags(t)}
	case 2:
		m.UDP = ports(t)
	case 3:
		m.ICMP = &flow.ICMP{Type: masked[uint8](t, 8), Code: masked[uint8](t, 8)}
	case 4:
		m.VXLAN = &flow.VXLAN{VNI: masked[uint32](t, 24), Inner: inner(t)}
	case 5:
		m.VXLAN = &flow.VXLAN{VNI: masked[uint32](t, 24), Inner: inner(t)}
		m.UDP = ports(t)
	case 7:
		m.Incomplete = true
		m.TCP = new(flow.TCP)
	case 8:
		m.Incomplete = true
	case 9:
		m.ESP = &flow.ESP{SPI: masked[uint32](t, 32)}
	case 16:
		m.SCTP = &flow.SCTP{Ports: *ports(t), Tag: masked[uint32](t, 32)}
	case 17:
		m.AH = &flow.AH{SPI: masked[uint32](t, 32)}
	case 18:
		m.ARP = &flow.ARP{Op: masked[uint16](t, 16)}
		bytes(t, m.ARP.Sender.Addr[:], m.ARP.Sender.Mask[:])
		bytes(t, m.ARP.Target.Addr[:], m.ARP.Target.Mask[:])
	case 10:
		m.MPLS = &flow.MPLS{Label: masked[uint32](t, 20), TC: masked[uint8](t, 3), Bottom: masked[uint8](t, 1), TTL: masked[uint8](t, 8)}
	case 6:
		m.GRE = &flow.GRE{Key: masked[uint32](t, 32), Inner: inner(t)}
	case 11:
		m.IPIP = &flow.IPIP{Inner: innerIP(t)}
	case 12:
		m.Geneve = &flow.Geneve{VNI: masked[uint32](t, 24), Inner: inner(t)}
	case 13:
		m.GTPU = &flow.GTPU{TEID: masked[uint32](t, 32), Inner: innerIP(t)}
		m.UDP = &flow.Ports{Src: port(t)}
	case 14, 15:
		entry := flow.MPLS{Label: masked[uint32](t, 20), TC: masked[uint8](t, 3), Bottom: masked[uint8](t, 1), TTL: masked[uint8](t, 8)}
		m.MPLSUDP = &flow.MPLSUDP{MPLS: entry, Inner: innerIP(t)}
	}
	if rapid.IntRange(0, 2).Draw(t, "sets") == 0 {
		choices(t, &m)
	}
	return m
}

func inner(t *rapid.T) *flow.Match {
	if !rapid.Bool().Draw(t, "inner") {
		return nil
	}
	m := match(t, false)
	return &m
}

// innerIP is inner without the layers below IP.
func innerIP(t *rapid.T) *flow.Match {
	m := inner(t)
	if m != nil {
		m.Eth, m.VLAN, m.Untagged, m.MPLS, m.ARP = nil, nil, false, nil, nil
	}
	return m
}

func ports(t *rapid.T) *flow.Ports { return &flow.Ports{Src: port(t), Dst: port(t)} }

func flags(t *rapid.T) flow.Masked[flow.TCPFlags] {
	m := masked[uint8](t, 8)
	return flow.Masked[flow.TCPFlags]{Value: flow.TCPFlags(m.Value), Mask: flow.TCPFlags(m.Mask)}
}

func port(t *rapid.T) flow.Port {
	if rapid.Bool().Draw(t, "range") {
		first := rapid.Uint16Range(0, 65534).Draw(t, "first")
		return flow.Port{Value: first, Last: rapid.Uint16Range(first+1, 65535).Draw(t, "last")}
	}
	m := masked[uint16](t, 16)
	return flow.Port{Value: m.Value, Mask: m.Mask}
}

func masked[T uint8 | uint16 | uint32](t *rapid.T, bits int) flow.Masked[T] {
	whole := T(uint32(1)<<bits - 1)
	mask := rapid.OneOf(rapid.Just(T(0)), rapid.Just(whole), rapid.Map(rapid.Uint32(), func(v uint32) T { return T(v) & whole })).Draw(t, "mask")
	return flow.Masked[T]{Value: T(rapid.Uint32().Draw(t, "value")) & mask, Mask: mask}
}

func bytes(t *rapid.T, addr, mask []byte) {
	prefix := rapid.IntRange(-1, 8*len(mask)).Draw(t, "prefix")
	for i := range mask {
		if prefix < 0 {
			mask[i] = rapid.Byte().Draw(t, "mask byte")
		} else {
			mask[i] = ^byte(0xff >> min(8, max(0, prefix-8*i)))
		}
		addr[i] = rapid.Byte().Draw(t, "byte") & mask[i]
	}
}
