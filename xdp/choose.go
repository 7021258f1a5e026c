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
// must pay: packets that hit its rules save the walk through the trees, and all other packets pay for one more probe.
func choose(t *tables, come []swap) map[words]bool {
	known := 0 // masks that have rules
	ranged := false
	t.everyTuple(func(u *tuple) {
		if u.rules > 0 {
			known++
			ranged = ranged || u.inTree()
		}
	})

	left := t.count // rules whose mask is not chosen
	rulesByMask := map[words]int{}
	for _, s := range come {
		if s.from != nil {
			continue
		}
		left++
		mask := s.to.Mask.words()
		if s.to.ranged() {
			ranged = true
		} else if t.hashedTuple(mask) == nil && t.treeTuples[*mask] == nil {
			rulesByMask[*mask]++
		}
	}

	// The mask with the most rules is judged first. The words of the masks break ties, because the map has no order: a Model of
	// the rules must hash the masks that the datapath hashes.
	masks := make([]words, 0, len(rulesByMask))
	for m := range rulesByMask {
		masks = append(masks, m)
	}
	slices.SortFunc(masks, func(a, b words) int {
		return cmp.Or(cmp.Compare(rulesByMask[b], rulesByMask[a]), slices.Compare(a[:], b[:]))
	})

	few := !ranged && known+len(masks) <= hashAll
	probe := float64(costFirstMask)
	if t.hashed() > 0 {
		probe = costNextMask
	}
	chosen := map[words]bool{}
	for _, m := range masks {
		n := rulesByMask[m]
		others := float64(left-n) / float64(left) // the share of packets that miss here and walk the trees
		if few || probe+others*costOfTrees(left-n) < costOfTrees(left) {
			chosen[m] = true
			left -= n
			probe = costNextMask
		}
	}
	return chosen
}
