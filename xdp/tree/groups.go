package tree

import (
	"errors"
	"math"
	"slices"
)

// quotas bound the memory of a class, in words per rule. replace tries them in order until the trees fit. With a quota of 0 there are
// only lists.
var quotas = []float64{singleTree, 24, 12, 6, 3, 1.5, 0}

// A rule goes to the next group if it would be in more than rootCopies children of the root, or in more than copies leaves. The first
// limit separates rules that name different fields. The second is rarely reached.
const (
	rootCopies = 16
	copies     = 1024
)

// few is added to every quota, in words, so that small sets are not cramped.
const few = 4096

// roots builds the trees of all classes, and returns their roots. rules must be sorted by rank.
func (b *builder) roots(rules []*rule, regions *[Classes]region, quota float64) (roots [Classes]Node) {
	for c := range roots {
		roots[c] = b.class(rules, c, regions[c], quota)
	}
	if b.err == nil && quota > 0 && b.size() > b.mem.most() {
		b.err = errQuota
	}
	return roots
}

// class builds the tree of one class, or its fork of trees. rules must be sorted by rank.
func (b *builder) class(rules []*rule, c int, region region, quota float64) Node {
	var todo []*rule
	for _, r := range rules {
		r.planned[c] = 0
		if r.classes>>c&1 != 0 {
			todo = append(todo, r)
		}
	}
	if b.err != nil {
		return 0 // an earlier class failed
	}
	b.region = region
	all := len(todo)
	left := int(float64(all) * quota)
	if quota >= 1 {
		left += few
	}
	if quota == singleTree {
		return b.single(todo, c, left)
	}

	// Each group takes the rules that suit it and passes on the rest. The last group takes all.
	var groups []Node
	var ranks []uint64 // the lowest of each group
	for g := 0; len(todo) > 0 && b.err == nil; g++ {
		last := g == MaxGroups-1
		share := left / 2
		if last {
			share = left
		}
		before := len(b.blocks)
		groups = append(groups, b.group(todo, all, share, last))
		ranks = append(ranks, todo[0].rank)
		for _, base := range b.blocks[before:] {
			left -= 2 << (b.mem.state[base/2] - 1)
		}
		rest := todo[:0:0]
		for _, r := range todo {
			if !r.ejected || r.copies > 1 {
				r.planned[c] |= 1 << g
			}
			if r.ejected {
				rest = append(rest, r)
			}
		}
		todo = rest
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
	for g, rank := range slices.Backward(ranks) {
		best = min(best, rank)
		b.mem.words[base+2*g] = uint64(groups[g])
		b.mem.words[base+2*g+1] = best
	}
	return newFork(base, len(groups))
}

// group builds the tree of a group. It marks the rules left to the next group as ejected. all is the number of rules in all groups.
//
// If the tree exceeds its quota, group tries again with narrower cuts and longer lists. It does the same if the memory is fragmented,
// so that no free block is large enough.
func (b *builder) group(rules []*rule, all, quota int, last bool) Node {
	mark := len(b.blocks)
	// In a group with few rules, each rule may take more words.
	scale := float64(all) / float64(len(rules))
	for try := 0; ; try++ {
		b.begin(rules, last)
		b.words = 8 * math.Sqrt(scale) / float64(int(1)<<try)
		b.leaf = 1 << try
		b.quota = quota
		if b.leaf >= MaxList {
			b.leaf, b.quota = MaxList, math.MaxInt
		}
		n := b.build(b.order(), 0)
		scattered := errors.Is(b.err, ErrFull) && b.mem.waiting == 0 && b.leaf < MaxList
		if !errors.Is(b.err, errQuota) && !scattered {
			return n
		}
		b.err = nil
		b.undo(mark)
	}
}
