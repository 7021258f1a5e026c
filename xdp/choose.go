package xdp

// choose decides which masks of rules that are about to be added are hashed.
func choose(t *tables, rules []Rule) map[words]bool {
	chosen := map[words]bool{}
	counts := map[words]int{}
	for i := range rules {
		r := &rules[i]
		mask := r.Mask.words()
		if r.ranged() || t.hashedTuple(mask) != nil || t.treed[*mask] != nil {
			continue
		}
		counts[*mask]++
	}
	for m := range counts {
		chosen[m] = len(counts) <= 2
	}
	return chosen
}
