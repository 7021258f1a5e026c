package xdp

import (
	"cmp"
	"math"
	"slices"
)

// Times of a packet in ns, as measured over spread packets: of the first hashed mask, of each further one, and of a level of a
// tree. A tree has as many levels as the logarithm of its rules.
const (
	costFirstMask = 10
	costNextMask  = 18
	costLevel     = 4
)

// hashAll is the number of masks up to which all are hashed, if no rule has a range.
const hashAll = 2

func costOfTrees(rules int) float64 { return costLevel * math.Log2(float64(rules+1)) }

// choose returns the masks of added rules that are to be hashed. Where there are few masks, it is all of them. Otherwise it is
// each mask of so many rules that its packets save more time than the probe costs the packets of the other rules.
func choose(t *tables, come []swap) map[words]bool {
	known := 0 // masks that have rules
	ranged := false
	t.everyTuple(func(u *tuple) {
		if u.rules > 0 {
			known++
			ranged = ranged || u.inTree()
		}
	})

	left := t.count // all rules, without those of chosen masks
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

	masks := make([]words, 0, len(rulesByMask))
	for m := range rulesByMask {
		masks = append(masks, m)
	}
	slices.SortFunc(masks, func(a, b words) int { return cmp.Compare(rulesByMask[b], rulesByMask[a]) })

	few := !ranged && known+len(masks) <= hashAll
	probe := float64(costFirstMask)
	if t.hashed() > 0 {
		probe = costNextMask
	}
	chosen := map[words]bool{}
	for _, m := range masks {
		n := rulesByMask[m]
		others := float64(left-n) / float64(left) // share of packets that pass the probe, and go on to the trees
		if few || probe+others*costOfTrees(left-n) < costOfTrees(left) {
			chosen[m] = true
			left -= n
			probe = costNextMask
		}
	}
	return chosen
}
