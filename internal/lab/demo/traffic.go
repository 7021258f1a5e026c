package demo

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
)

// traffic is one flow and the frames that belong to it, and to no other. A
// flow without frames is fed by the kernel's own TCP.
type traffic struct {
	name     string
	match    string // in the text form
	priority uint16
	action   flow.Action
	frames   [][]byte
	weight   int
	devx     bool // verbs cannot express the match, or count it beside an overlapping one
}

// Ports of the kernel's TCP streams.
const (
	ingressPort = 5201
	egressPort  = 5202
)

// The frames are addressed to a station that does not exist: the stack behind XDP
// ignores them, so that it sends no reply and the CPU is left to the senders.
var (
	eth     = frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0x0d, 1}, Src: [6]byte{2, 0, 0, 0, 0x0d, 2}}
	server4 = frame.IPv4{Src: addr("198.51.100.7"), Dst: addr("192.0.2.10")}
	server6 = frame.IPv6{Src: addr("2001:db8:1::7"), Dst: addr("2001:db8:2::a")}
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// variants are n frames made by build, which is told which.
func variants(n int, build func(i int) []byte) [][]byte {
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = build(i)
	}
	return frames
}

// ingress is the raw traffic from the far end, over the flows that count it.
func ingress() []traffic {
	from := func(i int) frame.IPv4 { // a client of 10.0.0.0/8
		h := server4
		h.Src = netip.AddrFrom4([4]byte{10, byte(i * 37), byte(i * 11), byte(i)})
		return h
	}
	exception := server4
	exception.Src = addr("10.1.2.3")
	banned := server4
	banned.Src = addr("203.0.113.66")
	key := uint32(7)
	return []traffic{
		{name: "dns4-clients", match: "ipv4 src 10.0.0.0/8 dst 192.0.2.10 udp dport 53", priority: 100, weight: 3,
			frames: variants(64, func(i int) []byte {
				return frame.Sized(60+i, eth, from(i), frame.UDP{Src: uint16(40000 + i), Dst: 53})
			})},
		{name: "dns4-one-client", match: "ipv4 src 10.1.2.3 udp dport 53", priority: 10, devx: true, // overlaps the one above
			frames: [][]byte{frame.Sized(80, eth, exception, frame.UDP{Src: 5353, Dst: 53})}},
		{name: "dns6", match: "ipv6 dst 2001:db8:2::/48 udp dport 53", priority: 100, weight: 2,
			frames: [][]byte{
				frame.Sized(90, eth, server6, frame.UDP{Src: 40001, Dst: 53}),
				frame.Sized(98, eth, server6, frame.Ext{Type: frame.HopByHop}, frame.UDP{Src: 40002, Dst: 53}),
				frame.Sized(120, eth, server6, frame.Ext{Type: frame.Destination, Body: make([]byte, 14)}, frame.UDP{Src: 40003, Dst: 53}),
			}},
		{name: "port-range", match: "ipv4 dst 192.0.2.10 udp dport 1000-2000", priority: 100, weight: 2,
			frames: variants(41, func(i int) []byte {
				return frame.Sized(64, eth, server4, frame.UDP{Src: 40000, Dst: uint16(1000 + i*25)})
			})},
		{name: "web4", match: "ipv4 dst 192.0.2.10 tcp dport 443", priority: 100, weight: 4,
			frames: [][]byte{
				frame.Sized(74, eth, server4, frame.TCP{Src: 50000, Dst: 443, Flags: frame.SYN, Options: []byte{2, 4, 5, 0xb4}}),
				frame.Sized(60, eth, server4, frame.TCP{Src: 50000, Dst: 443}),
				frame.Sized(1514, eth, server4, frame.TCP{Src: 50000, Dst: 443, Flags: frame.PSH | frame.ACK}),
				frame.Sized(590, eth, withOptions(server4), frame.TCP{Src: 50001, Dst: 443}),
			}},
		{name: "web6", match: "ipv6 src 2001:db8:1::/48 tcp dport 443", priority: 100, weight: 3,
			frames: [][]byte{
				frame.Sized(74, eth, server6, frame.TCP{Src: 50000, Dst: 443}),
				frame.Sized(1514, eth, server6, frame.TCP{Src: 50000, Dst: 443, Flags: frame.PSH | frame.ACK}),
			}},
		{name: "ping4", match: "ipv4 icmp type 8", priority: 100, devx: true,
			frames: [][]byte{frame.Sized(98, eth, server4, frame.ICMP{Type: frame.EchoRequest, Rest: 1<<16 | 1})}},
		{name: "ping6", match: "ipv6 icmp type 128", priority: 100, devx: true,
			frames: [][]byte{frame.Sized(118, eth, server6, frame.ICMPv6{Type: frame.EchoRequestV6, Rest: 1<<16 | 1})}},
		{name: "vlan", match: "vlan id 100 ipv4 udp dport 5000", priority: 100, devx: true,
			frames: [][]byte{frame.Sized(68, eth, frame.VLAN{ID: 100, PCP: 3}, server4, frame.UDP{Src: 40000, Dst: 5000})}},
		{name: "qinq", match: "vlan id 200 vlan id 7 ipv6 tcp dport 5000", priority: 100, devx: true,
			frames: [][]byte{frame.Sized(300, eth, frame.VLAN{ID: 200, TPID: frame.TypeQinQ}, frame.VLAN{ID: 7}, server6, frame.TCP{Src: 40000, Dst: 5000})}},
		{name: "vxlan-inner", match: "ipv4 dst 192.0.2.10 vxlan vni 5 inner ipv4 dst 10.0.0.1 tcp dport 80", priority: 50,
			frames: [][]byte{frame.Sized(200, eth, server4, frame.UDP{Src: 40000, Dst: 4789, NoSum: true}, frame.VXLAN{VNI: 5},
				eth, frame.IPv4{Src: addr("10.0.0.2"), Dst: addr("10.0.0.1")}, frame.TCP{Src: 40000, Dst: 80})}},
		{name: "gre-inner", match: "ipv4 gre key 7 inner ipv6 udp", priority: 50, devx: true,
			frames: [][]byte{frame.Sized(150, eth, server4, frame.GRE{Key: &key}, server6, frame.UDP{Src: 1, Dst: 2})}},
		{name: "fragments", match: "ipv4 dst 192.0.2.30 frag yes", priority: 100, devx: true,
			frames: frame.FragmentsIPv4([]frame.Layer{eth}, frame.IPv4{Src: server4.Src, Dst: addr("192.0.2.30"), ID: 9}, 512,
				frame.UDP{Src: 40000, Dst: 53}, frame.Payload(1200))},
		{name: "ethertype", match: "eth type 0x88b5", priority: 100,
			frames: [][]byte{frame.Sized(60, frame.Eth{Dst: eth.Dst, Src: eth.Src, Type: 0x88b5})}},
		{name: "dropped", match: "ipv4 src 203.0.113.0/24", priority: 1, action: flow.Drop, // before everything else
			frames: [][]byte{
				frame.Sized(60, eth, banned, frame.UDP{Src: 40000, Dst: 53}),
				frame.Sized(60, eth, banned, frame.TCP{Src: 40000, Dst: 443, Flags: frame.SYN}),
			}},
		{name: "tcp-stream", match: fmt.Sprintf("ipv4 tcp dport %d", ingressPort), priority: 100},
	}
}

// egress is the raw traffic that leaves the near end.
func egress() []traffic {
	return []traffic{
		{name: "egress-udp4", match: "ipv4 dst 192.0.2.10 udp dport 7000", priority: 100,
			frames: [][]byte{frame.Sized(64, eth, server4, frame.UDP{Src: 40000, Dst: 7000})}},
		{name: "egress-vlan6", match: "vlan id 300 ipv6 udp dport 7000", priority: 100, devx: true,
			frames: [][]byte{frame.Sized(300, eth, frame.VLAN{ID: 300}, server6, frame.UDP{Src: 40000, Dst: 7000})}},
		{name: "egress-tcp-stream", match: fmt.Sprintf("ipv6 tcp dport %d", egressPort), priority: 100},
	}
}

// withOptions gives the header a record-route option.
func withOptions(h frame.IPv4) frame.IPv4 {
	h.Options = []byte{7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(h.Options[3:], 0x0a000001)
	return h
}

// declare turns the traffic on one interface into flows, and into streams for
// a sender. Names are unique over the interfaces by their prefix.
func declare(prefix, iface string, d flow.Direction, items []traffic) (flows []flow.Flow, streams []lab.Stream, err error) {
	for _, t := range items {
		m, err := flow.ParseMatch(t.match)
		if err != nil {
			return nil, nil, fmt.Errorf("match of %s: %w", t.name, err)
		}
		name := prefix + "/" + t.name
		flows = append(flows, flow.Flow{
			Name: name, Match: m, Priority: t.priority, Action: t.action, Direction: d, Interface: iface,
		})
		if len(t.frames) > 0 {
			streams = append(streams, lab.Stream{Name: name, Frames: t.frames, Weight: t.weight})
		}
	}
	return flows, streams, nil
}
