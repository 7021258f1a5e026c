package xdp

import (
	"cmp"
	"math"
	"slices"
)

// Nanoseconds per packet, measured with packets of random flows.
const (
	costFirstMask = 10 // the probe under the first hashed mask
	costNextMask  = 18 // the probe under each further mask
	costLevel     = 4  // one level of a tree
)

// hashAll is the largest number of masks of which all are hashed, provided no rule has a port range.
const hashAll = 2

// costOfTrees estimates a walk through trees of this many rules. Their depth grows with the logarithm.
func costOfTrees(rules int) float64 { return costLevel * math.Log2(float64(rules+1)) }

// choose returns the masks to hash among those of added rules. It hashes all masks while there are few. With more, hashing a mask
// must pay: packets that hit a rule that wins over every rule of the trees save the walk through them, and all other packets pay
// for one more probe.
func choose(t *tables, come []swap) map[words]bool {
	known := 0 // masks that have rules
	ranged := false
	t.everyTuple(func(u *tuple) {
		if u.rules > 0 {
			known++
			ranged = ranged || u.inTree()
		}
	})

	left := t.count               // rules whose mask is not chosen
	inTrees := t.forest.best      // the lowest rank among the rules that are in the trees whatever choose returns
	ranks := map[words][]uint64{} // of the rules of each mask to judge
	for _, s := range come {
		if s.from != nil {
			continue
		}
		left++
		mask := s.to.Mask.words()
		switch {
		case s.to.ranged() || t.treeTuples[*mask] != nil:
			ranged = ranged || s.to.ranged()
			inTrees = min(inTrees, s.to.rank())
		case t.hashedTuple(mask) == nil:
			ranks[*mask] = append(ranks[*mask], s.to.rank())
		}
	}

	// The mask with the most rules is judged first. The words of the masks break ties, because the map has no order: a Model of
	// the rules must hash the masks that the datapath hashes.
	masks := make([]words, 0, len(ranks))
	for m := range ranks {
		masks = append(masks, m)
	}
	slices.SortFunc(masks, func(a, b words) int {
		return cmp.Or(cmp.Compare(len(ranks[b]), len(ranks[a])), slices.Compare(a[:], b[:]))
	})
	byRank := slices.Clone(masks)
	best := func(m words) uint64 { return slices.Min(ranks[m]) }
	slices.SortStableFunc(byRank, func(a, b words) int { return cmp.Compare(best(a), best(b)) })

	few := !ranged && known+len(masks) <= hashAll
	probe := float64(costFirstMask)
	if t.hashed() > 0 {
		probe = costNextMask
	}
	chosen := map[words]bool{}
	for _, m := range masks {
		// The trees would have the rules of all masks but m and those chosen.
		lowest := inTrees
		if i := slices.IndexFunc(byRank, func(o words) bool { return o != m && !chosen[o] }); i >= 0 {
			lowest = min(lowest, best(byRank[i]))
		}
		ends := 0 // rules of m that a packet hits without a walk behind it
		for _, r := range ranks[m] {
			if r < lowest {
				ends++
			}
		}

		n := len(ranks[m])
		walks := float64(left-ends) / float64(left) // the share of packets that walk the trees
		if few || probe+walks*costOfTrees(left-n) < costOfTrees(left) {
			chosen[m] = true
			left -= n
			probe = costNextMask
		}
	}
	return chosen
}
