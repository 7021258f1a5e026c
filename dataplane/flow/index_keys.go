package flow

import "slices"

// key returns a property that each packet has once, as a flow names it. Two flows that name different values do
// not overlap. "" stands for a flow that leaves the property open.
type key func(*Flow) string

// indexKeys are the keys by which an Index divides flows, in order of depth.
var indexKeys = []key{destinationAddress, destinationPort, sourceAddress, sourcePort, networkInterface}

func networkInterface(f *Flow) string { return f.Interface }

func destinationAddress(f *Flow) string {
	switch m := &f.Match; {
	case m.IPv4 != nil:
		return address(m.IPv4.Dst.Addr[:], m.IPv4.Dst.Mask[:])
	case m.IPv6 != nil:
		return address(m.IPv6.Dst.Addr[:], m.IPv6.Dst.Mask[:])
	}
	return ""
}

func sourceAddress(f *Flow) string {
	switch m := &f.Match; {
	case m.IPv4 != nil:
		return address(m.IPv4.Src.Addr[:], m.IPv4.Src.Mask[:])
	case m.IPv6 != nil:
		return address(m.IPv6.Src.Addr[:], m.IPv6.Src.Mask[:])
	}
	return ""
}

func address(a, mask []byte) string {
	if slices.ContainsFunc(mask, func(b byte) bool { return b != 0xff }) {
		return ""
	}
	return string(a)
}

func destinationPort(f *Flow) string {
	return portKey(&f.Match, func(p *Ports) Port { return p.Dst })
}

func sourcePort(f *Flow) string {
	return portKey(&f.Match, func(p *Ports) Port { return p.Src })
}

func portKey(m *Match, which func(*Ports) Port) string {
	protocol, ports := byte(upperUDP), m.UDP
	if m.TCP != nil {
		protocol, ports = upperTCP, &m.TCP.Ports
	}
	if ports == nil {
		return ""
	}
	p := which(ports)
	if p.Mask != 0xffff { // a range names no single port
		return ""
	}
	return string([]byte{protocol, byte(p.Value >> 8), byte(p.Value)})
}
