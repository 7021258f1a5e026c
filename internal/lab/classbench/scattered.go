package classbench

import "math/rand/v2"

// Scattered is a filter on TCP whose masks have any bits of the addresses. A sender of packets, or somebody who may add
// rules, chooses such filters to make a classifier slow.
type Scattered struct {
	Src, SrcMask, Dst, DstMask uint32
	SrcPort, DstPort           Range
}

// FewBits returns n filters with two bits of each address and nested ranges of the source port. Most packets match
// many of them.
func FewBits(n int, seed uint64) []Scattered {
	rng := rand.New(rand.NewPCG(seed, ofFewBits))
	rules := make([]Scattered, n)
	for i := range rules {
		rules[i] = scattered(rng, 2)
		rules[i].SrcPort = Range{uint16(i % 32768), uint16(65535 - i%32768)}
	}
	return rules
}

// SixBits returns n filters with six bits of each address and wide ranges of both ports.
func SixBits(n int, seed uint64) []Scattered {
	rng := rand.New(rand.NewPCG(seed, ofSixBits))
	wide := func() Range { return Range{uint16(rng.IntN(20_000)), uint16(40_000 + rng.IntN(25_536))} }
	rules := make([]Scattered, n)
	for i := range rules {
		rules[i] = scattered(rng, 6)
		rules[i].SrcPort, rules[i].DstPort = wide(), wide()
	}
	return rules
}

// Nested returns n filters with nested ranges of the source port and wide ranges of the destination port, and no address.
func Nested(n int) []Scattered {
	rules := make([]Scattered, n)
	for i := range rules {
		k := i % 32000
		rules[i].SrcPort = Range{uint16(k + 1), uint16(65535 - k)}
		rules[i].DstPort = Range{uint16(k * 7 % 30_000), uint16(65535 - k*13%30_000)}
	}
	return rules
}

// scattered draws masks of so many bits, and keys under them.
func scattered(rng *rand.Rand, bits int) (r Scattered) {
	for _, side := range []struct{ key, mask *uint32 }{{&r.Src, &r.SrcMask}, {&r.Dst, &r.DstMask}} {
		for _, bit := range rng.Perm(32)[:bits] {
			*side.mask |= 1 << bit
		}
		*side.key = rng.Uint32() & *side.mask
	}
	return r
}
