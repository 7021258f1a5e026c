package xdp

import (
	"net/netip"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/frame"
)

// A rule that asks for the four bits before the eight flags of TCP finds them on every path of the parser: in common frames of
// both IP versions, behind tags and options, and in a tunnel. Fields of IP that share their word of the key do not count.
func TestHighTCPFlagsAreCompared(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 256})
	out, in := mustCounter(t, dp, "out"), mustCounter(t, dp, "in")
	high := Headers{Proto: 6, Flags: FlagTCPFlags, TCPHigh: 5}
	mask := Headers{Proto: 0xff, Flags: FlagTCPFlags, TCPHigh: 0xf}
	outer := Rule{Key: Key{Out: high}, Mask: Key{Out: mask}, Counter: out}
	inner := Rule{Key: Key{In: high}, Mask: Key{In: mask}, Counter: in, Order: 1}
	inner.Key.Out.Flags, inner.Mask.Out.Flags = FlagTunnel, FlagTunnel
	mustAdd(t, dp, outer, inner)
	p := program(t, dp, HookIngress, 1)

	eth := frame.Eth{}
	ip4 := frame.IPv4{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), TTL: 0xff, TOS: 0xff}
	ip6 := frame.IPv6{Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8::2"), HopLimit: 0xff}
	for _, f := range []struct {
		name    string
		headers []frame.Layer
		counter uint32
	}{
		{"IPv4", []frame.Layer{eth, ip4}, out},
		{"IPv6", []frame.Layer{eth, ip6}, out},
		{"IPv4 behind a tag", []frame.Layer{eth, frame.VLAN{ID: 7}, ip4}, out},
		{"IPv6 behind an extension header", []frame.Layer{eth, ip6, frame.Ext{Type: frame.HopByHop}}, out},
		{"in VXLAN", []frame.Layer{eth, ip4, frame.UDP{Src: 1, Dst: 4789}, frame.VXLAN{VNI: 5}, eth, ip4}, in},
	} {
		for bits := range uint16(16) {
			before := readOne(t, dp, f.counter).Packets
			runFrame(t, p, frame.Build(append(f.headers, frame.TCP{Src: 1, Dst: 2, Flags: bits<<8 | frame.ACK}, frame.Payload(4))...))
			if counted := readOne(t, dp, f.counter).Packets - before; (counted == 1) != (bits == 5) {
				t.Errorf("%s: counted %d packets whose bits are %#x", f.name, counted, bits)
			}
		}
	}
}
