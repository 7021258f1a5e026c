package xdp

import (
	"cmp"
	"math"
	"slices"
)

// Costs of a packet in ns, as measured over spread packets: of the first hashed mask, of each further one, and of a
// level of a tree. The number of levels is the logarithm of the rules.
const (
	costFirstMask = 10
	costNextMask  = 18
	costLevel     = 4
)

// hashAll is the number of masks up to which all are hashed.
const hashAll = 2

func costOfTrees(rules int) float64 { return costLevel * math.Log2(float64(rules+1)) }

// choose decides which masks of rules that are about to be added are hashed: all of very few masks, and a mask that so
// many of the rules have that its packets save more than the search costs the others.
func choose(t *tables, come []swap) map[words]bool {
	counts := map[words]int{}
	all, masks, ranged := t.count, 0, false
	for _, m := range come {
		if m.from != nil {
			continue
		}
		all++
		mask := m.to.Mask.words()
		if m.to.ranged() {
			ranged = true
		} else if t.hashedTuple(mask) == nil && t.treeTuples[*mask] == nil {
			counts[*mask]++
		}
	}
	t.everyTuple(func(u *tuple) {
		if u.rules > 0 {
			masks++
			ranged = ranged || u.inTree()
		}
	})
	chosen := map[words]bool{}
	few := !ranged && masks+len(counts) <= hashAll
	fresh := make([]words, 0, len(counts))
	for m := range counts {
		fresh = append(fresh, m)
	}
	slices.SortFunc(fresh, func(a, b words) int { return cmp.Compare(counts[b], counts[a]) })
	cost := float64(costFirstMask)
	if t.hashed() > 0 {
		cost = costNextMask
	}
	left := all
	for _, m := range fresh {
		n := counts[m]
		others := float64(left-n) / float64(left)
		if few || cost+others*costOfTrees(left-n) < costOfTrees(left) {
			chosen[m] = true
			left -= n
			cost = costNextMask
		}
	}
	return chosen
}

// costProbe is the most that a packet touches under one hashed mask: 32 slots in a row are in at most five lines of the
// cache, and a probe compares at most four entries. costSingle is the same of a mask with one key, which is a constant of
// the program.
var (
	costProbe  = Path{Nodes: 5, Entries: slotAttempts}
	costSingle = Path{Nodes: 1, Entries: 1}
)
