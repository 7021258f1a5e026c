package tree

import (
	"errors"
	"math"
	"slices"
)

// quotas bound the memory of a class, in words for each of its rules. They are tried one after the other, until the trees fit
// into the memory. The last one makes lists alone.
var quotas = []float64{singleTree, 24, 12, 6, 3, 1.5, 0}

// A rule that would be in more children of the root than rootCopies, or in more leaves than copies, goes to the next group. The
// first limit divides the rules by the fields that they name. The second is rarely met.
const (
	rootCopies = 16
	copies     = 1024
)

// few is the quota of a small set, in words.
const few = 4096

// roots builds the trees of all classes, and returns their roots. rules ascend by rank.
func (b *builder) roots(rules []*rule, regions *[Classes]region, quota float64) (roots [Classes]Node) {
	for c := range roots {
		roots[c] = b.class(rules, c, regions[c], quota)
	}
	if b.err == nil && quota > 0 && b.size() > b.mem.most() {
		b.err = errQuota
	}
	return roots
}

// class builds the tree, or the fork of trees, of one class. rules ascend by rank.
func (b *builder) class(rules []*rule, c int, region region, quota float64) Node {
	var todo []*rule
	for _, r := range rules {
		r.planned[c] = 0
		if r.classes>>c&1 != 0 {
			todo = append(todo, r)
		}
	}
	if b.err != nil {
		return 0 // of the class before
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

	// A group takes what it can of the rules, and the next one the rest, down to the last one, which takes all.
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

// group builds the tree of a group, and marks the rules that it leaves to the next group. all is the number of rules of all
// groups.
//
// A tree that takes more words than its quota is built again, with narrower cuts and longer lists. So is one for which the
// memory has no block that is large enough: much of it may be free in small blocks.
func (b *builder) group(rules []*rule, all, quota int, last bool) Node {
	mark := len(b.blocks)
	// The fewer rules the group has, the more words may each of them take.
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
