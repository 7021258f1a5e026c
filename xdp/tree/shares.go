package tree

// The share of a rule at a node is the part of its packets that come there, if each child of the rule gets as many. Where a
// rule with many leaves meets a rule with this leaf alone, most packets are of the second one.

// movesUpTo is the longest list of a group that moveAhead sorts. Its time grows with the square of the length.
const movesUpTo = 64

// divideShares divides the share of each rule evenly between its children of a cut. uniteShares reverts that after the cut.
func (b *builder) divideShares(rules, children []int32) {
	for k, i := range rules {
		b.rules[i].share /= float64(max(children[k], 1))
	}
}

func (b *builder) uniteShares(rules, children []int32) {
	for k, i := range rules {
		b.rules[i].share *= float64(max(children[k], 1))
	}
}

// compared returns the mean number of entries that a packet of a list is compared with before its own.
func (b *builder) compared(rules []int32) float64 {
	entries, share := 0.0, 0.0
	for i, r := range rules {
		share += b.rules[r].share
		entries += b.rules[r].share * float64(i)
	}
	return entries / share
}

// listOfGroup estimates the walk through a list of a group, in nanoseconds. Most packets end at the first entry if few are compared
// with a second one. They do not load the words of the list.
func (b *builder) listOfGroup(rules []int32) float64 {
	before := b.compared(rules)
	return nsEntry + (nsList+nsEntry/2)*min(1, 2*before) + nsEntry*max(0, before-0.5)
}

// listOfSingle estimates the walk through a list of a single tree, in nanoseconds.
func (b *builder) listOfSingle(rules []int32) float64 {
	return nsEntry + nsNextOfSingle*b.compared(rules)
}

// moves reports whether a node with so many rules, which may become a list, sorts them by their shares.
func (b *builder) moves(rules int) bool {
	if b.choiceByHash != nil {
		return b.depth >= b.levels-1
	}
	return rules <= movesUpTo
}

// moveAhead moves rules with a larger share of packets to the front of a list. A rule may overtake another one only if no packet can
// match both.
func (b *builder) moveAhead(rules []int32) {
	for i, at := range rules {
		r := b.rules[at]
		for ; i > 0; i-- {
			before := b.rules[rules[i-1]]
			if before.share >= r.share || before.overlaps(r) {
				break
			}
			rules[i] = rules[i-1]
		}
		rules[i] = at
	}
}
