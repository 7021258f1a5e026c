package tree

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// Bits of the flags in the tests' keys: the last two bytes of word 0, in host order, as package xdp has them.
const (
	flagIPv4 = 1 << 3
	flagIPv6 = 1 << 4
	flagL4   = 1 << 7
)

// word0 makes the first word of a key or of a mask.
func word0(src, dst uint16, proto uint8, flags uint16) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint16(b[0:], src)
	binary.BigEndian.PutUint16(b[2:], dst)
	b[4] = proto
	binary.NativeEndian.PutUint16(b[6:], flags)
	return binary.NativeEndian.Uint64(b[:])
}

// word1 makes the word of the IPv4 addresses.
func word1(src, dst uint32) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint32(b[0:], src)
	binary.BigEndian.PutUint32(b[4:], dst)
	return binary.NativeEndian.Uint64(b[:])
}

var testClass = ClassBits{IPv4: word0(0, 0, 0, flagIPv4), IPv6: word0(0, 0, 0, flagIPv6)}

// rule5 is a rule over an IPv4 5-tuple.
type rule5 struct {
	src, dst       uint32
	srcLen, dstLen int
	proto          uint8 // 0: any
	ports          Ranges
}

func (r rule5) rule(i int, rank uint64) Rule {
	flags := uint16(flagIPv4)
	var n Rule
	proto := uint8(0)
	if r.proto != 0 {
		proto = 0xff
	}
	if r.ports != (Ranges{}) {
		flags |= flagL4
	}
	n.Mask[0], n.Key[0] = word0(0, 0, proto, flags), word0(0, 0, r.proto, flags)
	sm, dm := ^uint32(0)<<(32-r.srcLen), ^uint32(0)<<(32-r.dstLen)
	if r.srcLen == 0 {
		sm = 0
	}
	if r.dstLen == 0 {
		dm = 0
	}
	n.Mask[1], n.Key[1] = word1(sm, dm), word1(r.src&sm, r.dst&dm)
	n.Ports[0] = r.ports
	n.Rank = rank
	n.Slot = uint64(i+1)<<5 | 1<<49
	return n
}

// rule5s gives the rules ranks in their order, or at random.
func rule5s(g *rand.Rand, in []rule5, random bool) []Rule {
	order := make([]int, len(in))
	for i := range order {
		order[i] = i
	}
	if random {
		g.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	out := make([]Rule, len(in))
	for i, r := range in {
		out[i] = r.rule(i, uint64(order[i]))
	}
	return out
}

func exact(p uint16) Range { return Range{p, p} }

func pick[T any](g *rand.Rand, of ...T) T { return of[g.IntN(len(of))] }

// setMasks is n rules over src {0,16,24,32} x dst {24,32} x {any, protocol, protocol and port}: 24 masks.
func setMasks(g *rand.Rand, n int) []rule5 {
	out := make([]rule5, n)
	for i := range out {
		r := rule5{src: g.Uint32(), dst: 10<<24 | g.Uint32()>>8, srcLen: pick(g, 0, 16, 24, 32), dstLen: pick(g, 24, 32)}
		switch g.IntN(3) {
		case 1:
			r.proto = pick[uint8](g, 6, 17)
		case 2:
			r.proto, r.ports.Dst = pick[uint8](g, 6, 17), exact(uint16(1+g.IntN(65535)))
		}
		out[i] = r
	}
	return out
}

// setLengths is n rules with any of the prefix lengths from least on: about (33-least)² x 4 masks.
func setLengths(g *rand.Rand, n, least int) []rule5 {
	out := make([]rule5, n)
	for i := range out {
		r := rule5{src: g.Uint32(), dst: g.Uint32(), srcLen: least + g.IntN(33-least), dstLen: least + g.IntN(33-least)}
		switch g.IntN(4) {
		case 1:
			r.proto = pick[uint8](g, 6, 17)
		case 2:
			r.proto, r.ports.Dst = pick[uint8](g, 6, 17), exact(uint16(1+g.IntN(65535)))
		case 3:
			r.proto, r.ports.Dst, r.ports.Src = 6, exact(uint16(1+g.IntN(65535))), exact(uint16(1+g.IntN(65535)))
		}
		out[i] = r
	}
	return out
}

func randomRange(g *rand.Rand) Range {
	a, b := uint16(g.IntN(65536)), uint16(g.IntN(65536))
	return Range{min(a, b), max(a, b)}
}

// setRanges is setMasks with random ranges of both ports.
func setRanges(g *rand.Rand, n int) []rule5 {
	out := setMasks(g, n)
	for i := range out {
		out[i].proto = pick[uint8](g, 6, 17)
		out[i].ports = Ranges{randomRange(g), randomRange(g)}
	}
	return out
}

// prefixes is a pool of nested address prefixes, as a ClassBench filter set draws from.
func prefixes(g *rand.Rand, n int) []uint32 {
	out := []uint32{g.Uint32()}
	for len(out) < n {
		p := out[g.IntN(len(out))]
		keep := 8 * (1 + g.IntN(3))
		out = append(out, p&(^uint32(0)<<(32-keep))|g.Uint32()>>keep)
	}
	return out
}

// profile says how often the fields of a ClassBench-like set have which shapes, in percent.
type profile struct {
	srcAny, dstAny     int
	srcLens, dstLens   []int
	srcPort, dstPort   [5]int // any, >1023, <1024, other range, exact
	tcp, udp, anyProto int
}

// After the distributions that Taylor and Turner, "ClassBench: A Packet Classification Benchmark" (2007),
// describe for access lists, firewalls and IP chains; the numbers are our own.
var profiles = map[string]profile{
	"acl": {srcAny: 10, dstAny: 2, srcLens: []int{16, 20, 22, 23, 24, 26, 27, 28, 30, 32, 32}, dstLens: []int{16, 22, 23, 24, 24, 26, 27, 28, 30, 32, 32, 32, 32},
		srcPort: [5]int{98, 1, 0, 0, 1}, dstPort: [5]int{20, 4, 0, 15, 61}, tcp: 70, udp: 15, anyProto: 10},
	"fw": {srcAny: 40, dstAny: 30, srcLens: []int{8, 16, 17, 22, 24, 24, 28, 32, 32, 32}, dstLens: []int{13, 16, 20, 24, 24, 27, 32, 32, 32},
		srcPort: [5]int{60, 15, 3, 7, 15}, dstPort: [5]int{25, 12, 3, 15, 45}, tcp: 55, udp: 25, anyProto: 15},
	"ipc": {srcAny: 15, dstAny: 12, srcLens: []int{10, 14, 16, 20, 21, 24, 26, 28, 32, 32, 32}, dstLens: []int{10, 14, 16, 20, 22, 24, 26, 28, 32, 32, 32},
		srcPort: [5]int{65, 8, 3, 6, 18}, dstPort: [5]int{45, 6, 3, 8, 38}, tcp: 50, udp: 25, anyProto: 20},
}

var ports = []uint16{20, 21, 22, 23, 25, 53, 80, 110, 123, 139, 143, 161, 389, 443, 445, 514, 1521, 1723, 3306, 5432, 5632, 6789, 7000, 8080}

func (p *profile) port(g *rand.Rand, weights [5]int) Range {
	x := g.IntN(100)
	for i, w := range weights {
		if x -= w; x >= 0 {
			continue
		}
		switch i {
		case 1:
			return Range{1024, 65535}
		case 2:
			return Range{0, 1023}
		case 3:
			a := uint16(1 + g.IntN(60000))
			return Range{a, a + uint16(1+g.IntN(1<<(1+g.IntN(12))))}
		case 4:
			return exact(ports[g.IntN(len(ports))])
		}
		break
	}
	return Range{}
}

// setBench is n different rules of a profile.
func setBench(g *rand.Rand, name string, n int) []rule5 {
	p := profiles[name]
	pool := max(16, n/(1+g.IntN(3)))
	srcs, dsts := prefixes(g, pool), prefixes(g, pool)
	seen := map[rule5]bool{}
	var out []rule5
	for tries := 0; len(out) < n && tries < 50*n; tries++ {
		r := rule5{src: pick(g, srcs...), dst: pick(g, dsts...), srcLen: pick(g, p.srcLens...), dstLen: pick(g, p.dstLens...)}
		if g.IntN(100) < p.srcAny {
			r.srcLen = 0
		}
		if g.IntN(100) < p.dstAny {
			r.dstLen = 0
		}
		switch x := g.IntN(100); {
		case x < p.tcp:
			r.proto = 6
		case x < p.tcp+p.udp:
			r.proto = 17
		case x >= p.tcp+p.udp+p.anyProto:
			r.proto = 1
		}
		if r.proto == 6 || r.proto == 17 {
			r.ports = Ranges{p.port(g, p.srcPort), p.port(g, p.dstPort)}
		}
		if r.srcLen == 0 {
			r.src = 0
		}
		if r.dstLen == 0 {
			r.dst = 0
		}
		r.src &= ^uint32(0) << (32 - r.srcLen)
		r.dst &= ^uint32(0) << (32 - r.dstLen)
		if !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	return out
}

// linear is the matcher that Lookup is compared with.
type linear struct {
	rules map[uint64]*rule
}

func newLinear(rules []Rule) *linear {
	l := &linear{rules: map[uint64]*rule{}}
	for i := range rules {
		l.rules[rules[i].Slot] = newRule(&rules[i])
	}
	return l
}

func swapped(k *Key) *[Words]uint64 {
	var s [Words]uint64
	for w := range k {
		s[w] = be64(k[w])
	}
	return &s
}

// plain compares without the builder's view of a rule.
func plain(r *Rule, k *Key) bool {
	for w := range k {
		if k[w]&r.Mask[w] != r.Key[w] {
			return false
		}
	}
	for level, p := range r.Ports {
		v := be64(k[portWords[level]])
		for i, pr := range [2]Range{p.Src, p.Dst} {
			if port := uint16(v >> (48 - 16*i)); pr != (Range{}) && (port < pr.First || port > pr.Last) {
				return false
			}
		}
	}
	return true
}

// best is the slot of the lowest rank that matches.
func best(rules []Rule, k *Key) (slot uint64) {
	rank := NoRank
	for i := range rules {
		if r := &rules[i]; r.Rank < rank && plain(r, k) {
			slot, rank = r.Slot, r.Rank
		}
	}
	return slot
}

// entries compares with the rules of a slice by their slots.
func entries(rules []Rule) Entry {
	by := map[uint64]*Rule{}
	for i := range rules {
		by[rules[i].Slot] = &rules[i]
	}
	return func(slot uint64, k *Key) (uint64, bool) {
		r := by[slot]
		return r.Rank, plain(r, k)
	}
}

// packet makes a key that the rule matches, or, one in near, one that differs from it in a bit.
func packet(g *rand.Rand, r *Rule, near int) Key {
	var k Key
	for w := range 2 {
		k[w] = r.Key[w] | g.Uint64()&^r.Mask[w]
	}
	v := be64(k[0])
	for i, pr := range [2]Range{r.Ports[0].Src, r.Ports[0].Dst} {
		if pr != (Range{}) {
			port := uint64(pr.First) + uint64(g.IntN(int(pr.Last)-int(pr.First)+1))
			v = v&^(0xffff<<(48-16*i)) | port<<(48-16*i)
		}
	}
	k[0] = be64(v)
	flags := uint16(flagIPv4 | flagL4)
	k[0] = k[0]&^word0(0, 0, 0, 0xffff) | word0(0, 0, 0, flags)
	if near > 0 && g.IntN(near) == 0 {
		b := bits.Len64(g.Uint64()) % 48
		if g.IntN(2) == 0 {
			k[1] ^= 1 << (b + g.IntN(16))
		} else {
			k[0] = be64(be64(k[0]) ^ 1<<(16+b%48))
		}
	}
	return k
}
