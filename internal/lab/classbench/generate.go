package classbench

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// draws of the generator, so that functions with one seed are independent of one another.
const (
	ofRules = iota + 1
	ofTrace
	ofPoints
	ofMasked
	ofRanges
	ofFewBits
	ofSixBits
	ofPrefixes
)

// Generate returns n distinct filters of a family, the most specific first, as the paper orders them: no
// filter is hidden by an earlier one that contains it.
func Generate(f Family, n int, seed uint64) []Rule {
	g := &generator{rng: rand.New(rand.NewPCG(seed, ofRules<<8|uint64(f))), parameters: f.parameters(), seed: seed}
	return distinct(n, g.rule, func(rules []Rule) {
		slices.SortStableFunc(rules, func(a, b Rule) int { return cmp.Compare(b.scope(), a.scope()) })
	})
}

// distinct draws until there are n different rules, and orders them.
func distinct(n int, draw func() Rule, order func([]Rule)) []Rule {
	seen := make(map[Rule]bool, n)
	rules := make([]Rule, 0, n)
	for len(rules) < n {
		if r := draw(); !seen[r] {
			seen[r] = true
			rules = append(rules, r)
		}
	}
	order(rules)
	return rules
}

// scope is the number of bits that a rule asks for.
func (r *Rule) scope() int {
	bits := r.Src.Len + r.Dst.Len + r.SrcPort.scope() + r.DstPort.scope()
	if r.Proto != 0 {
		bits += 8
	}
	return bits
}

func (r Range) scope() (bits int) {
	for size := int(r.Last) - int(r.First) + 1; size < 1<<16; size *= 2 {
		bits++
	}
	return bits
}

// generator draws the filters of one set.
type generator struct {
	parameters
	rng  *rand.Rand
	seed uint64
}

func pick[T any](rng *rand.Rand, from []weighted[T]) T {
	sum := 0
	for _, w := range from {
		sum += w.weight
	}
	at := rng.IntN(sum)
	for _, w := range from {
		if at -= w.weight; at < 0 {
			return w.value
		}
	}
	panic("unreachable: the weights sum up to more")
}

func between(rng *rand.Rand, least, most int) int { return least + rng.IntN(most-least+1) }

func (g *generator) rule() Rule {
	r := Rule{Proto: pick(g.rng, g.protocols), SrcPort: AnyPort(), DstPort: AnyPort()}
	if ported(r.Proto) {
		pair := pick(g.rng, g.pairs)
		r.SrcPort, r.DstPort = g.ports(pair.src), g.ports(pair.dst)
	}
	l := pick(g.rng, g.prefixes)
	src, dst := between(g.rng, l.srcLeast, l.srcMost), between(g.rng, l.dstLeast, l.dstMost)
	r.Dst = prefix(g.walk(1, 0, 0), dst)
	shared := 0
	for shared < min(src, dst) && g.rng.Float64() < g.correlation {
		shared++
	}
	r.Src = prefix(g.walk(0, r.Dst.Addr, shared), src)
	return r
}

func prefix(addr uint32, length int) Prefix {
	p := Prefix{Len: length}
	p.Addr = addr & p.Mask()
	return p
}

func (g *generator) ports(c class) Range {
	switch c {
	case hi:
		return Range{1024, 65535}
	case lo:
		return Range{0, 1023}
	case em:
		port := pick(g.rng, g.exact)
		if port == 0 {
			port = uint16(1 + g.rng.IntN(65535))
		}
		return Range{port, port}
	case ar:
		// Most arbitrary ranges are short, and some span half of the ports.
		first := g.rng.IntN(65535)
		last := min(65535, first+1+g.rng.IntN(1<<between(g.rng, 1, 15)))
		return Range{uint16(first), uint16(last)}
	}
	return AnyPort()
}

// walk goes down the address trie of a side and returns the address at its end. Its first bits are the bits of
// start. Whether a node has two children, and which is the heavier, is a function of the set's seed and the node.
func (g *generator) walk(side int, start uint32, shared int) uint32 {
	addr := start & Prefix{Len: shared}.Mask()
	for level := shared; level < 32; level++ {
		node := mix(g.seed ^ uint64(side)<<62 ^ uint64(level)<<40 ^ uint64(addr))
		heavier := uint32(node & 1)
		bit := heavier
		if fraction(mix(node)) < g.branch[side][level/8] && g.rng.Float64() < (1-g.skew[side])/(2-g.skew[side]) {
			bit = 1 - heavier
		}
		addr |= bit << (31 - level)
	}
	return addr
}

func fraction(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
