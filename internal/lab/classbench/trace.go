package classbench

import (
	"math"
	"math/rand/v2"
)

// Locality is the shape and the scale of the Pareto distribution of how often a header is repeated in a row.
// The zero value repeats none. The paper calls {1, 0.1} low and {1, 1} high locality.
type Locality struct{ Shape, Scale float64 }

// Trace returns n packets: for each a random filter and a random corner of it, repeated in a row as often as
// a draw from the Pareto distribution says. Without rules it returns none.
func Trace(rules []Rule, n int, l Locality, seed uint64) []Packet {
	rng := rand.New(rand.NewPCG(seed, ofTrace))
	return packets(rng, rules, n, func(r *Rule) Packet { return r.point(rng, corner) }, l)
}

// Points returns n packets, each a random point of a randomly chosen rule. Without rules it returns none.
func Points(rules []Rule, n int, seed uint64) []Packet {
	rng := rand.New(rand.NewPCG(seed, ofPoints))
	return packets(rng, rules, n, func(r *Rule) Packet { return r.point(rng, inside) }, Locality{})
}

func packets(rng *rand.Rand, rules []Rule, n int, draw func(*Rule) Packet, l Locality) []Packet {
	if len(rules) == 0 {
		return nil
	}
	out := make([]Packet, 0, n)
	for len(out) < n {
		p := draw(&rules[rng.IntN(len(rules))])
		for copies := l.copies(rng, n-len(out)); copies > 0; copies-- {
			out = append(out, p)
		}
	}
	return out
}

// copies draws how often a header stands in a row, 1 to most.
func (l Locality) copies(rng *rand.Rand, most int) int {
	if l.Shape <= 0 || l.Scale <= 0 {
		return 1
	}
	x := math.Ceil(l.Scale / math.Pow(1-rng.Float64(), 1/l.Shape))
	return int(math.Min(math.Max(x, 1), float64(most)))
}

// corner and inside choose a value of an interval.
func corner(rng *rand.Rand, first, last uint32) uint32 {
	if rng.IntN(2) == 0 {
		return first
	}
	return last
}

func inside(rng *rand.Rand, first, last uint32) uint32 {
	return first + uint32(rng.Uint64N(uint64(last-first)+1))
}

func (r *Rule) point(rng *rand.Rand, choose func(*rand.Rand, uint32, uint32) uint32) Packet {
	address := func(p Prefix) uint32 { return choose(rng, p.Addr, p.Addr|^p.Mask()) }
	p := Packet{Src: address(r.Src), Dst: address(r.Dst), Proto: r.Proto}
	if p.Proto == 0 {
		p.Proto = []uint8{tcp, udp, icmp}[rng.IntN(3)]
	}
	if ported(p.Proto) {
		port := func(r Range) uint16 { return uint16(choose(rng, uint32(r.First), uint32(r.Last))) }
		p.SrcPort, p.DstPort = port(r.SrcPort), port(r.DstPort)
	}
	return p
}
