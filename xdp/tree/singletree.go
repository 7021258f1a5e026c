package tree

import "errors"

// A set of up to singleTreeRules gets a single tree per class, with the quota singleTree. There a rule may be in any number of leaves.
// The tree is large, but walking a second tree would cost a packet more than the cache misses. Changing a rule in thousands of
// leaves takes long, though. With the first such change, the set is divided into groups.
const (
	singleTree      = 420
	singleTreeRules = 2048
)

// Limits of a single tree, for the fields of builder. A unit of work takes about 0.4 µs. A set beyond these limits is divided into
// groups.
const (
	wordsOfSingle  = 4
	leafOfSingle   = 2
	workOfSingle   = 2_000_000
	copiesOfSingle = 100_000
)

// single first builds a tree in which most ways have this number of levels, that is cuts. If a packet is compared with fewer rules than
// fewRules, it also tries one level less. With more than manyRules, it tries one level more. It keeps the faster tree.
const (
	levels      = 4
	fewRules    = 4
	manyRules   = 7
	rulesPerCut = 3 // a cut is expected to divide the rules of a node by this
)

// nsNextOfSingle is the weight of each further entry of a list, when build chooses between a cut and a list.
const nsNextOfSingle = 4.0

// nsWordsOfSingle are weights of a word of memory. withLevels uses the first that keeps the tree within its limits.
var nsWordsOfSingle = []float64{0.05, 0.12, 0.3}

// Nanoseconds by which single compares two trees, from a profile of trees with two to five levels.
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

// withLevels builds the tree with the first of the weights that keeps it within its limits. It returns the weights from this one on.
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

// levelled replaces the function below in a single tree. A mispredicted branch takes longer than a cut, so there most packets should
// pass the same number of cuts. levelled therefore assumes a cut at each remaining level.
func (b *builder) levelled(m float64) float64 {
	cost := nsEntry
	for level := b.depth + 2; level < b.levels && m >= 2; level++ {
		m /= rulesPerCut
		cost += nsCut
	}
	return cost + nsNextOfSingle*max(m-1, 0)/2
}

// leaves has statistics about where packets end their walk through a single tree.
type leaves struct {
	cuts    [MaxDepth + 1]float64 // packets by number of cuts
	entries [64]float64           // packets by number of entries after the first; the last element includes all larger numbers
}

// leave adds the packets of a leaf to b.leaves. In a group it does nothing.
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

// compared returns the mean number of entries compared with a packet.
func (l *leaves) compared() float64 {
	mean, _ := exits(l.entries[:])
	return 1 + mean
}

// ns estimates the mean time of a packet in nanoseconds.
func (l *leaves) ns() float64 {
	cuts, missedCuts := exits(l.cuts[:])
	entries, missedEntries := exits(l.entries[:])
	return nsLevel*cuts + nsPass*entries + nsMiss*(missedCuts+missedEntries)
}

// exits returns the mean number of steps of a loop, and how often a CPU mispredicts its end. After each step, the CPU is assumed to
// predict the more frequent outcome.
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
