package classbench

import "math/rand/v2"

// shape is a mask over the five fields.
type shape struct {
	src, dst     int
	proto        bool
	sport, dport bool
}

// Masked returns n distinct rules over that many masks (at most n and 4096), in random order, so that
// the masks do not order the rules. 24 masks or fewer are the pairs of source prefixes of 32, 24, 16 and 0 bits and
// destination prefixes of 32 and 24 bits, with protocol and destination port, protocol, or neither. More masks
// are drawn from every pair of prefix lengths with a destination of at least 8 bits.
func Masked(n, masks int, seed uint64) []Rule {
	rng := rand.New(rand.NewPCG(seed, ofMasked))
	shapes := grid()
	if masks > len(shapes) {
		shapes = everyShape(rng)
	}
	shapes = shapes[:masks]
	at := 0
	draw := func() Rule {
		// A mask of few values may be used up: the next draw takes another one.
		s := shapes[at%masks]
		at++
		return s.rule(rng, max(16, n/64))
	}
	return distinct(n, draw, func(rules []Rule) { shuffle(rng, rules) })
}

func shuffle(rng *rand.Rand, rules []Rule) {
	rng.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
}

func grid() (shapes []shape) {
	for _, dst := range []int{32, 24} {
		for _, src := range []int{32, 24, 16, 0} {
			shapes = append(shapes, shape{src: src, dst: dst, proto: true, dport: true}, shape{src: src, dst: dst, proto: true}, shape{src: src, dst: dst})
		}
	}
	return shapes
}

func everyShape(rng *rand.Rand) (shapes []shape) {
	for dst := 8; dst <= 32; dst++ {
		for src := range 33 {
			for _, sport := range []bool{false, true} {
				for _, dport := range []bool{false, true} {
					shapes = append(shapes, shape{src, dst, true, sport, dport})
				}
			}
			shapes = append(shapes, shape{src: src, dst: dst})
		}
	}
	rng.Shuffle(len(shapes), func(i, j int) { shapes[i], shapes[j] = shapes[j], shapes[i] })
	return shapes[:4096]
}

// rule draws a rule of a mask. Addresses lie in so many networks of 16 bits on each side.
func (s shape) rule(rng *rand.Rand, networks int) Rule {
	address := func() uint32 { return uint32(mix(uint64(rng.IntN(networks))))&0xffff<<16 | rng.Uint32()&0xffff }
	r := Rule{Src: prefix(address(), s.src), Dst: prefix(address(), s.dst), SrcPort: AnyPort(), DstPort: AnyPort()}
	if s.proto {
		r.Proto = []uint8{tcp, udp}[rng.IntN(2)]
	}
	port := func() Range {
		p := uint16(1 + rng.IntN(65535))
		return Range{p, p}
	}
	if s.sport {
		r.SrcPort = port()
	}
	if s.dport {
		r.DstPort = port()
	}
	return r
}

// Ranges returns n rules with the addresses of Masked(n, 24, seed), of TCP or UDP, each with a random range of
// source ports and one of destination ports.
func Ranges(n int, seed uint64) []Rule {
	rng := rand.New(rand.NewPCG(seed, ofRanges))
	rules := Masked(n, 24, seed)
	random := func() Range {
		a, b := uint16(rng.Uint32()), uint16(rng.Uint32())
		return Range{min(a, b), max(a, b)}
	}
	for i := range rules {
		r := &rules[i]
		if r.Proto == 0 {
			r.Proto = []uint8{tcp, udp}[rng.IntN(2)]
		}
		r.SrcPort, r.DstPort = random(), random()
	}
	return rules
}
