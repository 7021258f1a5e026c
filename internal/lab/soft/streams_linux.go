package soft

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
)

// Stream is a flow and frames that it matches.
type Stream struct {
	Flow   flow.Flow
	Frames [][]byte
	Verbs  bool // ibv_create_flow can express the match
}

// Streams returns flows of each kind that hardware counts, none of which matches a frame of another.
func Streams(t testing.TB) []Stream {
	t.Helper()
	eth := frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}}
	ip4 := frame.IPv4{Src: frame.Addr("198.51.100.1"), Dst: frame.Addr("192.0.2.1")}
	ip6 := frame.IPv6{Src: frame.Addr("2001:db8::1"), Dst: frame.Addr("2001:db8::2")}
	options := ip4
	options.Options = []byte{7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0}
	key := uint32(7)
	out := []Stream{
		{Verbs: true, Flow: flow.Flow{Name: "udp4", Match: match(t, "ipv4 dst 192.0.2.0/24 udp dport 1001")},
			Frames: [][]byte{frame.Sized(60, eth, ip4, frame.UDP{Src: 9, Dst: 1001}), frame.Sized(1514, eth, options, frame.UDP{Src: 9, Dst: 1001})}},
		{Verbs: true, Flow: flow.Flow{Name: "udp6", Match: match(t, "ipv6 src 2001:db8::/64 udp sport 9 dport 1002")},
			Frames: [][]byte{frame.Sized(99, eth, ip6, frame.UDP{Src: 9, Dst: 1002}), frame.Sized(120, eth, ip6, frame.Ext{Type: frame.HopByHop}, frame.UDP{Src: 9, Dst: 1002})}},
		{Verbs: true, Flow: flow.Flow{Name: "tcp", Match: match(t, "tcp dport 443")},
			Frames: [][]byte{frame.Sized(60, eth, ip4, frame.TCP{Src: 9, Dst: 443}), frame.Sized(1514, eth, ip6, frame.TCP{Src: 9, Dst: 443})}},
		{Verbs: true, Flow: flow.Flow{Name: "range", Match: match(t, "ipv4 udp dport 2000-2999")},
			Frames: [][]byte{frame.Sized(60, eth, ip4, frame.UDP{Src: 9, Dst: 2000}), frame.Sized(61, eth, ip4, frame.UDP{Src: 9, Dst: 2999}), frame.Sized(62, eth, ip4, frame.UDP{Src: 9, Dst: 2517})}},
		{Verbs: true, Flow: flow.Flow{Name: "icmp", Match: match(t, "ipv6 icmp")},
			Frames: [][]byte{frame.Sized(118, eth, ip6, frame.ICMPv6{Type: 128})}},
		{Flow: flow.Flow{Name: "echo", Match: match(t, "ipv4 icmp type 8")},
			Frames: [][]byte{frame.Sized(98, eth, ip4, frame.ICMP{Type: 8})}},
		{Flow: flow.Flow{Name: "too-big", Match: match(t, "ipv4 icmp type 3 code 4")},
			Frames: [][]byte{frame.Sized(70, eth, ip4, frame.ICMP{Type: 3, Code: 4})}},
		{Verbs: true, Flow: flow.Flow{Name: "vxlan", Match: match(t, "ipv4 vxlan vni 5 inner ipv4 dst 10.0.0.1 tcp dport 80")},
			Frames: [][]byte{frame.Sized(200, eth, ip4, frame.UDP{Src: 9, Dst: 4789, NoSum: true}, frame.VXLAN{VNI: 5}, eth, frame.IPv4{Src: frame.Addr("10.0.0.2"), Dst: frame.Addr("10.0.0.1")}, frame.TCP{Src: 9, Dst: 80})}},
		{Verbs: true, Flow: flow.Flow{Name: "type", Match: match(t, "eth type 0x88b5")},
			Frames: [][]byte{frame.Sized(60, frame.Eth{Dst: eth.Dst, Src: eth.Src, Type: 0x88b5})}},
		{Verbs: true, Flow: flow.Flow{Name: "tos", Match: match(t, "ipv4 proto 89 tos 0x10/0xfc")},
			Frames: [][]byte{frame.Sized(80, eth, frame.IPv4{Src: ip4.Src, Dst: ip4.Dst, TOS: 0x11, Proto: 89}, frame.Payload(20))}},
		{Flow: flow.Flow{Name: "vlan", Match: match(t, "vlan id 100 ipv4 udp dport 5000")},
			Frames: [][]byte{
				frame.Sized(68, eth, frame.VLAN{ID: 100, PCP: 3}, ip4, frame.UDP{Src: 9, Dst: 5000}),
				frame.Sized(70, eth, frame.VLAN{ID: 100, TPID: frame.TypeQinQ}, ip4, frame.UDP{Src: 9, Dst: 5000})}},
		{Flow: flow.Flow{Name: "qinq", Match: match(t, "vlan id 200 vlan id 7 ipv6 tcp dport 5000")},
			Frames: [][]byte{frame.Sized(300, eth, frame.VLAN{ID: 200, TPID: frame.TypeQinQ}, frame.VLAN{ID: 7}, ip6, frame.TCP{Src: 9, Dst: 5000})}},
		{Flow: flow.Flow{Name: "gre", Match: match(t, "ipv4 gre key 7 inner ipv6 udp")},
			Frames: [][]byte{frame.Sized(150, eth, ip4, frame.GRE{Key: &key}, ip6, frame.UDP{Src: 1, Dst: 2})}},
		{Verbs: true, Flow: flow.Flow{Name: "esp", Match: match(t, "esp spi 0x1000")},
			Frames: [][]byte{frame.Sized(90, eth, ip4, frame.ESP{SPI: 0x1000, Seq: 1}), frame.Sized(110, eth, ip6, frame.ESP{SPI: 0x1000, Seq: 2})}},
		{Verbs: true, Flow: flow.Flow{Name: "mpls", Match: match(t, "mpls label 16 ttl 64")},
			Frames: [][]byte{frame.Sized(90, eth, frame.MPLS{Label: 16}, ip4, frame.UDP{Src: 9, Dst: 1001}), frame.Sized(94, eth, frame.MPLS{Label: 16}, frame.MPLS{Label: 17}, ip6)}},
		{Flow: flow.Flow{Name: "syn", Match: match(t, "ipv6 tcp dport 444 flags syn/syn,ack")},
			Frames: [][]byte{frame.Sized(90, eth, ip6, frame.TCP{Src: 9, Dst: 444, Flags: frame.SYN}), frame.Sized(90, eth, ip6, frame.TCP{Src: 9, Dst: 444, Flags: frame.SYN | 0xc0})}},
		{Flow: flow.Flow{Name: "untagged", Match: match(t, "eth type 0x88b6 untagged")},
			Frames: [][]byte{frame.Sized(60, frame.Eth{Dst: eth.Dst, Src: eth.Src, Type: 0x88b6})}},
		{Flow: flow.Flow{Name: "fragments", Match: match(t, "ipv4 dst 192.0.2.30 frag yes")},
			Frames: frame.FragmentsIPv4([]frame.Layer{eth}, frame.IPv4{Src: ip4.Src, Dst: frame.Addr("192.0.2.30"), ID: 9}, 512, frame.UDP{Src: 9, Dst: 53}, frame.Payload(1200))},
		{Verbs: true, Flow: flow.Flow{Name: "out4", Direction: flow.Egress, Match: match(t, "ipv4 udp dport 7000")},
			Frames: [][]byte{frame.Sized(64, eth, ip4, frame.UDP{Src: 9, Dst: 7000})}},
		{Flow: flow.Flow{Name: "out6", Direction: flow.Egress, Match: match(t, "vlan id 300 ipv6 udp dport 7000")},
			Frames: [][]byte{frame.Sized(300, eth, frame.VLAN{ID: 300}, ip6, frame.UDP{Src: 9, Dst: 7000})}},
	}
	for i := range out {
		out[i].Flow.Priority = 100
	}
	return out
}

// Send sends n frames of the streams of one direction, mixed, and adds the frames of each to sent, by flow.
func (n *NIC) Send(t testing.TB, streams []Stream, d flow.Direction, frames uint64, sent map[string]lab.Tally) {
	t.Helper()
	var mix []lab.Stream
	for _, x := range streams {
		if x.Flow.Direction == d {
			mix = append(mix, lab.Stream{Name: x.Flow.Name, Frames: x.Frames})
		}
	}
	end := n.Wire.Far
	if d == flow.Egress {
		end = n.Wire.Near
	}
	snd, err := end.NewSender(mix, lab.SenderOptions{Stack: d == flow.Egress})
	if err != nil {
		t.Fatal(err)
	}
	defer snd.Close()
	if err := snd.Run(t.Context(), frames); err != nil {
		t.Fatal(err)
	}
	if err := snd.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if snd.Refused() > 0 {
		t.Fatalf("%d frames were refused on their way", snd.Refused())
	}
	for i, x := range snd.Sent() {
		was := sent[mix[i].Name]
		sent[mix[i].Name] = lab.Tally{Packets: was.Packets + x.Packets, Bytes: was.Bytes + x.Bytes}
	}
}

func match(t testing.TB, text string) flow.Match {
	t.Helper()
	m, err := flow.ParseMatch(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
