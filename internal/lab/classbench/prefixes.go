package classbench

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// Prefixes returns n distinct rules that name a destination prefix and no other field. The longest prefixes stand
// first, so the longest one that matches a packet decides it, as in a routing table. Their lengths have roughly the
// shares of the Internet's table, with host routes added, and many prefixes lie within shorter ones.
func Prefixes(n int, seed uint64) []Rule {
	rng := rand.New(rand.NewPCG(seed, ofPrefixes))
	lengths := prefixLengths()
	networks := max(16, n/64)
	draw := func() Rule {
		// A network of 16 bits has several prefixes, of different lengths.
		network := uint32(mix(uint64(rng.IntN(networks)))) & 0xffff << 16
		return Rule{
			Dst:     prefix(network|rng.Uint32()&0xffff, pick(rng, lengths)),
			SrcPort: AnyPort(),
			DstPort: AnyPort(),
		}
	}
	return distinct(n, draw, func(rules []Rule) {
		slices.SortStableFunc(rules, func(a, b Rule) int { return cmp.Compare(b.Dst.Len, a.Dst.Len) })
	})
}

// prefixLengths are the lengths of the prefixes, in percent.
func prefixLengths() []weighted[int] {
	return []weighted[int]{
		{14, 1},
		{16, 2},
		{18, 2},
		{19, 3},
		{20, 5},
		{21, 5},
		{22, 12},
		{23, 10},
		{24, 50},
		{32, 10},
	}
}
