package overlap

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// key returns the value that a flow requires for some property of a packet, or "" if the flow leaves it open. Flows that
// require different values cannot overlap.
type key func(*flow.Flow) string

// keys has the keys of an Index by depth.
var keys = []key{destinationAddress, destinationPort, sourceAddress, sourcePort, networkInterface}

func networkInterface(f *flow.Flow) string { return f.Interface }

func destinationAddress(f *flow.Flow) string {
	switch m := &f.Match; {
	case m.IPv4 != nil:
		return address(m.IPv4.Dst.Addr[:], m.IPv4.Dst.Mask[:])
	case m.IPv6 != nil:
		return address(m.IPv6.Dst.Addr[:], m.IPv6.Dst.Mask[:])
	}
	return ""
}

func sourceAddress(f *flow.Flow) string {
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

func destinationPort(f *flow.Flow) string {
	return portKey(&f.Match, func(p *flow.Ports) flow.Port { return p.Dst })
}

func sourcePort(f *flow.Flow) string {
	return portKey(&f.Match, func(p *flow.Ports) flow.Port { return p.Src })
}

func portKey(m *flow.Match, which func(*flow.Ports) flow.Port) string {
	protocol := byte(flow.ProtoUDP)
	ports := m.UDP
	if m.TCP != nil {
		protocol = flow.ProtoTCP
		ports = &m.TCP.Ports
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
