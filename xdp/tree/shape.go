package tree

import "slices"

// shape bounds the memory of a tree.
type shape struct {
	limit int     // copies of a rule above which it goes to the next group
	words float64 // nodes of a cut for each of its rules
	leaf  int     // rules that are a list without a look for a cut
}

// shapes are tried one after the other until the trees fit: each takes less memory and more time of a packet.
var shapes = []shape{{16, 4, 1}, {8, 2, 1}, {4, 1, 4}, {2, 0.5, 8}, {1, 0.25, 16}, {1, 0.1, 64}, {1, 0.01, MaxList}}

func newBuilder(mem *memory, s shape) *builder {
	return &builder{mem: mem, limit: s.limit, words: s.words, leaf: s.leaf, lists: map[uint64]int32{}}
}

// class builds the tree, or the fork of trees, of one class. rules ascend by rank.
func (b *builder) class(rules []*rule, c int, region region) Node {
	var todo []*rule
	for _, r := range rules {
		r.planned[c] = 0
		if r.classes>>c&1 != 0 {
			todo = append(todo, r)
		}
	}
	var groups []Node
	var ranks []uint64
	for g := 0; len(todo) > 0 && b.err == nil; g++ {
		b.region, b.rules, b.last = region, todo, g == MaxGroups-1
		order := make([]int32, len(todo))
		for i, r := range todo {
			order[i] = int32(i)
			r.copies, r.ejected = 1, false
			r.planned[c] |= 1 << g
		}
		groups = append(groups, b.build(order, 0, 0))
		ranks = append(ranks, todo[0].rank)
		todo = slices.DeleteFunc(slices.Clone(todo), func(r *rule) bool {
			if r.ejected && r.copies == 1 {
				r.planned[c] &^= 1 << g // it is nowhere in this tree
			}
			return !r.ejected
		})
	}
	switch {
	case len(groups) == 0 || b.err != nil:
		return 0
	case len(groups) == 1:
		return groups[0]
	}
	base := b.alloc(2 * len(groups))
	if base < 0 {
		return 0
	}
	best := NoRank
	for g := len(groups) - 1; g >= 0; g-- {
		best = min(best, ranks[g])
		b.mem.words[base+2*g], b.mem.words[base+2*g+1] = uint64(groups[g]), best
	}
	return newFork(base, len(groups))
}
