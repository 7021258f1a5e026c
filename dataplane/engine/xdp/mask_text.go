package xdp

import (
	"fmt"
	"strings"

	"github.com/flowtally/flowtally/xdp"
)

// maskText names the fields of a mask, each with its bits in hex, for people who ask what the classifier does. IPv4 addresses
// take the first eight bytes of Addr.
func maskText(m *xdp.Key) string {
	var out []string
	for i, h := range []*xdp.Headers{&m.Out, &m.In} {
		level := []string{"", "inner "}[i]
		add := func(name string, b ...byte) {
			for _, x := range b {
				if x != 0 {
					out = append(out, fmt.Sprintf("%s%s %x", level, name, b))
					return
				}
			}
		}
		two := func(name string, v uint16) { add(name, byte(v>>8), byte(v)) }
		two("headers", uint16(h.Flags))
		two("interface", h.Port)
		add("eth dst", h.EthDst[:]...)
		add("eth src", h.EthSrc[:]...)
		add("eth type", h.EthType[:]...)
		add("vlan", h.VLAN[0][:]...)
		add("vlan 2", h.VLAN[1][:]...)
		if [24]byte(h.Addr[8:]) == [24]byte{} {
			add("addresses", h.Addr[:8]...)
		} else {
			add("addresses", h.Addr[:]...)
		}
		add("label", h.Label[:]...)
		add("next", h.Next)
		add("proto", h.Proto)
		add("tos", h.TOS)
		add("ttl", h.TTL)
		add("ports", h.L4[:]...)
		if h.TCPHigh != 0 {
			add("tcp flags", h.TCPHigh, h.TCPFlags)
		} else {
			add("tcp flags", h.TCPFlags)
		}
		add("tunnel", h.Tunnel[:]...)
	}
	if len(out) == 0 {
		return "every packet"
	}
	return strings.Join(out, ", ")
}
