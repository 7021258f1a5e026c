package tree

import "errors"

// A set of at most singleTreeRules has a single tree for each class, whatever the number of leaves that a rule is in. singleTree
// is its quota. A walk of a second tree costs a packet more than misses of the cache in a greater one. But a change of a rule in
// thousands of leaves takes long: with the first such change, the set is divided into groups.
const (
	singleTree      = 420
	singleTreeRules = 2048
)

// Bounds of a single tree, as builder has them. A unit of work takes about 0.4 µs. A set that takes more is divided into groups.
const (
	wordsOfSingle  = 4
	leafOfSingle   = 2
	workOfSingle   = 2_000_000
	copiesOfSingle = 100_000
)

// A level is a cut on a way to a leaf; a list may take the place of the last one. The tree is built with levels first. If a packet
// compares fewer rules than fewRules there, it is built with one level less too, and if more than manyRules, with one more.
// The faster tree is taken.
const (
	levels      = 4
	fewRules    = 4
	manyRules   = 7
	rulesPerCut = 3 // of so many rules of a node, a cut is expected to leave one in a child
)

// nsNextOfSingle is the time in ns of each further entry of a list, when a cut is compared with a list.
const nsNextOfSingle = 4.0

// nsWordsOfSingle are weights of a word. The first one with which the tree stays within its bounds is taken.
var nsWordsOfSingle = []float64{0.05, 0.12, 0.3}

// Times in ns by which trees of different levels are compared, by a profile of trees of two to five levels.
const (
	nsLevel = 4.5 // a cut
	nsPass  = 1.7 // a further entry
	nsMiss  = 9.0 // a branch that the CPU mispredicts
)

// single builds the tree of a class without groups.
func (b *builder) single(rules []*rule, c, quota int) Node {
	for _, r := range rules {
		r.planned[c] = 1
	}

	start := len(b.blocks)
	b.levels = levels
	first, weights := b.withLevels(rules, quota, nsWordsOfSingle)
	firstLeaves := b.leaves
	switch compared := firstLeaves.compared(); {
	case b.err != nil:
		return 0
	case compared < fewRules:
		b.levels--
	case compared > manyRules:
		b.levels++
	default:
		return first
	}

	end := len(b.blocks) // of the first tree
	second, _ := b.withLevels(rules, quota, weights)
	if b.err != nil || b.leaves.ns() >= firstLeaves.ns() {
		b.err = nil
		b.undo(end)
		return first
	}
	b.free(b.blocks[start:end])
	b.blocks = append(b.blocks[:start], b.blocks[end:]...)
	return second
}

// withLevels builds the tree with the first weight of a word that keeps it within its bounds. It returns this weight and those
// behind it, for the next tree.
func (b *builder) withLevels(rules []*rule, quota int, weights []float64) (n Node, left []float64) {
	mark := len(b.blocks)
	quota = min(quota, b.mem.most()-b.size())
	for i, weight := range weights {
		left = weights[i:]
		b.err = nil
		b.undo(mark)
		b.begin(rules, true)
		b.copies = copiesOfSingle
		b.words = wordsOfSingle
		b.leaf = leafOfSingle
		b.nsWord = weight
		b.quota = quota
		b.work = workOfSingle
		b.choiceByHash = map[uint64]choice{}
		if n = b.build(b.order(), 0); !errors.Is(b.err, errQuota) {
			break
		}
	}
	b.choiceByHash = nil
	return n, left
}

// divideShares divides the packets of each rule between its children of a cut. Behind the cut uniteShares takes that back. In a
// group both do nothing.
func (b *builder) divideShares(rules, children []int32) {
	for k, i := range rules {
		if b.choiceByHash != nil {
			b.rules[i].share /= float64(max(children[k], 1))
		}
	}
}

func (b *builder) uniteShares(rules, children []int32) {
	for k, i := range rules {
		if b.choiceByHash != nil {
			b.rules[i].share *= float64(max(children[k], 1))
		}
	}
}

// levelled is the function below for a single tree. There most packets pass the same number of cuts, because a mispredicted branch
// takes longer than a cut. So levelled expects a cut at each level that is left.
func (b *builder) levelled(m float64) float64 {
	cost := nsEntry
	for level := b.depth + 2; level < b.levels && m >= 2; level++ {
		m /= rulesPerCut
		cost += nsCut
	}
	return cost + nsNextOfSingle*max(m-1, 0)/2
}

// listOfSingle estimates the time of a list of rules.
func (b *builder) listOfSingle(rules []int32) float64 {
	entries, share := 0.0, 0.0
	for i, r := range rules {
		share += b.rules[r].share
		entries += b.rules[r].share * float64(i)
	}
	return nsEntry + nsNextOfSingle*entries/share
}

// moveAhead sorts rules by the number of their packets that come here, as far as ranks allow: a rule passes others that match none
// of its packets.
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

// leaves counts where packets leave a single tree.
type leaves struct {
	cuts    [MaxDepth + 1]float64 // by number of cuts
	entries [64]float64           // by number of entries behind the first of a leaf; the last stands for all further ones
}

// leave counts the packets of a leaf. In a group it does nothing.
func (b *builder) leave(rules []int32) {
	if b.choiceByHash == nil {
		return
	}
	l := &b.leaves
	for i, r := range rules {
		share := b.rules[r].share
		l.cuts[b.depth] += share
		l.entries[min(i, len(l.entries)-1)] += share
	}
}

// compared returns the mean number of entries that are compared with a packet.
func (l *leaves) compared() float64 {
	mean, _ := exits(l.entries[:])
	return 1 + mean
}

// ns estimates the mean time of a packet.
func (l *leaves) ns() float64 {
	cuts, missedCuts := exits(l.cuts[:])
	entries, missedEntries := exits(l.entries[:])
	return nsLevel*cuts + nsPass*entries + nsMiss*(missedCuts+missedEntries)
}

// exits returns the mean step at which a loop ends, and how often a CPU mispredicts its end: after each step the CPU expects what
// is more frequent, the end or the next step.
func exits(at []float64) (mean, missed float64) {
	left := 0.0
	for i, share := range at {
		mean += float64(i) * share
		left += share
	}
	all := max(left, 1e-9)
	for _, share := range at {
		left -= share
		missed += min(share, left)
	}
	return mean / all, missed / all
}
