package tree

import "errors"

// singleTree is the quota of a set of at most singleTreeRules that is one tree for each class, whatever the number of leaves
// that a rule is in. A walk of a second tree costs more than misses of the cache in a greater one, but a change of a
// rule in thousands of leaves takes long: the set is divided into groups when the first such change comes.
const (
	singleTree      = 420
	singleTreeRules = 2048
)

// The build of one tree: nodes of a cut for each of its rules, rules that are a list without a look for a cut, and the
// work, which takes about 0.4 µs. A set that takes more is divided into groups.
const (
	wordsOfSingle = 4
	leafOfSingle  = 2
	workOfSingle  = 2_000_000
	// copiesOfSingle is the number of leaves of a rule from which on a cut does not look at the rule.
	copiesOfSingle = 100_000
)

// levels are cuts on a way: a list may take the place of the last one. Of rulesPerCut rules a cut leaves one. A tree of
// which a packet compares fewer rules than fewRules is built with one level less too, one with more than manyRules with
// one more, and the better is taken.
const (
	levels      = 4
	rulesPerCut = 3
	fewRules    = 4
	manyRules   = 7
)

// nsNextOfSingle is the time of each further entry of a list, as a cut is chosen. nsWordsOfSingle are the weights of a word:
// the first tree within the bounds is taken.
const nsNextOfSingle = 4.0

var nsWordsOfSingle = []float64{0.05, 0.12, 0.3}

// Times in ns by which trees of different levels are compared: of a cut, of a further entry, and of a branch that the CPU
// mispredicts. A profile of trees of two to five levels has them.
const (
	nsLevel = 4.5
	nsPass  = 1.7
	nsMiss  = 9.0
)

// single builds the tree of a class without groups.
func (b *builder) single(rules []*rule, c, quota int) Node {
	for _, r := range rules {
		r.planned[c] = 1
	}
	first := len(b.blocks)
	b.levels = levels
	n, weights := b.withLevels(rules, quota, nsWordsOfSingle)
	was := b.leaves
	switch compared := was.compared(); {
	case b.err != nil:
		return 0
	case compared < fewRules:
		b.levels--
	case compared > manyRules:
		b.levels++
	default:
		return n
	}
	second := len(b.blocks)
	other, _ := b.withLevels(rules, quota, weights)
	if b.err != nil || b.leaves.ns() >= was.ns() {
		b.err = nil
		b.undo(second)
		return n
	}
	b.free(b.blocks[first:second])
	b.blocks = append(b.blocks[:first], b.blocks[second:]...)
	return other
}

// withLevels builds the tree with the first weight of a word that leaves it in the bounds, and returns this weight and
// those behind it.
func (b *builder) withLevels(rules []*rule, quota int, weights []float64) (n Node, left []float64) {
	mark := len(b.blocks)
	quota = min(quota, b.mem.most()-b.size())
	for i, weight := range weights {
		left = weights[i:]
		b.err = nil
		b.undo(mark)
		b.begin(rules, true)
		b.copies, b.nsWord, b.words, b.leaf, b.work, b.quota = copiesOfSingle, weight, wordsOfSingle, leafOfSingle, workOfSingle, quota
		b.chosen = map[uint64]choice{}
		if n = b.build(b.order(), 0); !errors.Is(b.err, errQuota) {
			break
		}
	}
	b.chosen = nil
	return n, left
}

// divide gives each child of a cut of one tree its share of the packets of a rule, and unite takes it back.
func (b *builder) divide(rules, children []int32) {
	for k, i := range rules {
		if b.chosen != nil {
			b.rules[i].share /= float64(max(children[k], 1))
		}
	}
}

func (b *builder) unite(rules, children []int32) {
	for k, i := range rules {
		if b.chosen != nil {
			b.rules[i].share *= float64(max(children[k], 1))
		}
	}
}

// levelled is below for one tree. There packets pass the same number of cuts where that is possible: a mispredicted
// branch takes longer than a cut. So a node expects a cut at each level that is left.
func (b *builder) levelled(m float64) float64 {
	cost := nsEntry
	for level := b.depth + 2; level < b.levels && m >= 2; level++ {
		m /= rulesPerCut
		cost += nsCut
	}
	return cost + nsNextOfSingle*max(m-1, 0)/2
}

// listOfSingle estimates the walk of a list of rules.
func (b *builder) listOfSingle(rules []int32) float64 {
	entries, share := 0.0, 0.0
	for i, r := range rules {
		share += b.rules[r].share
		entries += b.rules[r].share * float64(i)
	}
	return nsEntry + nsNextOfSingle*entries/share
}

// moveAhead moves the rules ahead of which more packets come here, as far as ranks allow: past rules that match none of
// their packets.
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

// leaves are the shares of packets that leave one tree after so many cuts, and after so many entries behind the first of
// a leaf.
type leaves struct {
	cuts    [MaxDepth + 1]float64
	entries [64]float64 // the last stands for all further ones
}

// leave adds the shares of a leaf's packets.
func (b *builder) leave(rules []int32) {
	if b.chosen == nil {
		return
	}
	l := &b.leaves
	for i, r := range rules {
		share := b.rules[r].share
		l.cuts[b.depth] += share
		l.entries[min(i, len(l.entries)-1)] += share
	}
}

// compared is the mean number of entries that are compared with a packet.
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

// exits returns the mean step at which a loop ends, and how often a CPU mispredicts that: after each step it expects the
// more frequent of end and next step.
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
