package classbench

import (
	"encoding/binary"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Protocol numbers that the rules name. 0 in a rule is every protocol.
const (
	icmp = 1
	tcp  = 6
	udp  = 17
	gre  = 47
	esp  = 50
)

// Prefix is an IPv4 prefix. Addr, in host order, has no bit behind the first Len.
type Prefix struct {
	Addr uint32
	Len  int
}

// Range is an inclusive range of ports.
type Range struct{ First, Last uint16 }

// AnyPort returns the range of a rule that does not look at the port.
func AnyPort() Range { return Range{0, 65535} }

// Any reports whether every port is in r.
func (r Range) Any() bool { return r == AnyPort() }

// Rule is one rule over the five fields of IPv4. Only a rule of TCP or UDP restricts ports.
type Rule struct {
	Src, Dst         Prefix
	SrcPort, DstPort Range
	Proto            uint8 // 0: every protocol
}

// Packet is a header that rules are matched with.
type Packet struct {
	Src, Dst         uint32 // host order
	SrcPort, DstPort uint16 // 0 unless TCP or UDP
	Proto            uint8
}

// Mask returns the mask of the prefix, in host order.
func (p Prefix) Mask() uint32 { return uint32(^uint64(0) << (32 - p.Len)) }

func (p Prefix) contains(a uint32) bool { return a&p.Mask() == p.Addr }

func (r Range) contains(port uint16) bool { return r.First <= port && port <= r.Last }

func ported(proto uint8) bool { return proto == tcp || proto == udp }

// Matches reports whether r matches p.
func (r *Rule) Matches(p Packet) bool {
	return r.Src.contains(p.Src) && r.Dst.contains(p.Dst) && (r.Proto == 0 || r.Proto == p.Proto) &&
		r.SrcPort.contains(p.SrcPort) && r.DstPort.contains(p.DstPort)
}

// First returns the place of the rule that decides p, -1 if no rule matches.
func First(rules []Rule, p Packet) int {
	for i := range rules {
		if rules[i].Matches(p) {
			return i
		}
	}
	return -1
}

// Match returns r as the match of a flow.
func (r *Rule) Match() flow.Match {
	ip := &flow.IPv4{Src: r.Src.flow(), Dst: r.Dst.flow()}
	m := flow.Match{IPv4: ip}
	ports := flow.Ports{Src: r.SrcPort.flow(), Dst: r.DstPort.flow()}
	switch r.Proto {
	case 0:
	case tcp:
		m.TCP = &flow.TCP{Ports: ports}
	case udp:
		m.UDP = &ports
	default:
		ip.Proto = flow.Masked[uint8]{Value: r.Proto, Mask: 0xff}
	}
	return m
}

func (p Prefix) flow() (a flow.Addr4) {
	binary.BigEndian.PutUint32(a.Addr[:], p.Addr)
	binary.BigEndian.PutUint32(a.Mask[:], p.Mask())
	return a
}

func (r Range) flow() flow.Port {
	switch {
	case r.Any():
		return flow.Port{}
	case r.First == r.Last:
		return flow.Port{Value: r.First, Mask: 0xffff}
	}
	return flow.Port{Value: r.First, Last: r.Last}
}

// Masks returns the number of distinct masks of rules; a range of ports that is neither one port nor all
// of them is a mask of its own kind.
func Masks(rules []Rule) int {
	type mask struct {
		src, dst     int
		proto        bool
		sport, dport Range
	}
	seen := make(map[mask]bool)
	kind := func(r Range) Range {
		if r.First == r.Last {
			return Range{}
		}
		return r
	}
	for _, r := range rules {
		seen[mask{r.Src.Len, r.Dst.Len, r.Proto != 0, kind(r.SrcPort), kind(r.DstPort)}] = true
	}
	return len(seen)
}

// FrameLen is the length of a frame of Packet.Frame.
const FrameLen = 64

// Frame returns the packet as an Ethernet frame without FCS. The IP header has no options, its checksum is
// zero, and the TCP header no flags.
func (p Packet) Frame() []byte {
	b := make([]byte, FrameLen)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45})
	binary.BigEndian.PutUint16(b[16:], FrameLen-14)
	b[22], b[23] = 64, p.Proto
	binary.BigEndian.PutUint32(b[26:], p.Src)
	binary.BigEndian.PutUint32(b[30:], p.Dst)
	binary.BigEndian.PutUint16(b[34:], p.SrcPort)
	binary.BigEndian.PutUint16(b[36:], p.DstPort)
	if p.Proto == udp {
		binary.BigEndian.PutUint16(b[38:], FrameLen-34)
	} else {
		b[46] = 5 << 4 // TCP: a header of 20 bytes
	}
	return b
}
