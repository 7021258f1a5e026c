package tree

import (
	"errors"
	"math"
	"slices"
)

// builder makes trees in free blocks, one after the other: the groups of a class, or its single tree. No program sees a block
// before the caller stores a root. The first error ends the build; undo frees the blocks.
type builder struct {
	mem *memory
	err error

	// The tree that is being built.
	rules  []*rule // ascending rank; places in this slice stand for rules
	region region  // of the node that is being built
	depth  int     // cuts above that node
	last   bool    // no group follows that could take rules

	// Its bounds.
	copies int     // leaves of a rule
	words  float64 // nodes of a cut, for each of its rules
	leaf   int     // rules that become a list without a look for a cut
	nsWord float64 // weight of a word of memory
	quota  int     // words that are left
	work   int     // that is left: copies of rules, and a 32nd of those by which windows are judged

	// Its blocks.
	blocks     []uint32         // of all trees since newBuilder
	listByHash map[uint64]int32 // base of a list; only blocks that an undo frees together

	// Of a single tree.
	choiceByHash map[uint64]choice // many nodes have equal rules; nil in a group
	levels       int               // cuts of most ways
	leaves       leaves

	stop  func() error // Set.stopped
	steps int          // since the last call of stop
	built int          // nodes, of all trees and of all changes

	// Scratch memory.
	sample  [sampled]int32
	stack   []int32 // see push
	counts  []bitCount
	windows []window
	nodes   []Node
	hist    []uint16 // by value of a window; all 0 between two uses
	touched []uint32
	spans   []int32
}

// stepsPerStop is the number of steps between two calls of Set.Stop, which take a fraction of a millisecond. A step is a rule in
// a child of a window. A node takes stepsOfNode and, near a root, millions more.
const (
	stepsPerStop = 1 << 14
	stepsOfNode  = stepsPerStop / 64
)

// errQuota ends the build of a tree that takes too many words or too much work.
var errQuota = errors.New("tree: over the quota")

// newBuilder returns a builder without blocks. It has the scratch memory of the last builder.
func (s *Set) newBuilder() *builder {
	b := s.builder
	if b == nil {
		b = &builder{mem: s.mem, hist: make([]uint16, 1<<MaxBits)}
		s.builder = b
	}
	b.err = nil
	b.rules = nil
	b.depth = 0
	b.blocks = b.blocks[:0]
	b.stop = s.stopped
	return b
}

// alloc returns the base of a new block, or -1 behind an error.
func (b *builder) alloc(n int) int {
	base, ok := b.mem.alloc(n)
	if !ok {
		b.err = ErrFull
		return -1
	}
	b.blocks = append(b.blocks, uint32(base))
	if b.quota -= n; b.quota < 0 {
		b.err = errQuota
	}
	return base
}

// stopped notes steps, and reports whether the build has ended with an error, perhaps that of Set.Stop.
func (b *builder) stopped(steps int) bool {
	if b.steps += steps; b.steps >= stepsPerStop && b.err == nil {
		b.steps = 0
		b.err = b.stop()
	}
	return b.err != nil
}

// size returns the words of all blocks.
func (b *builder) size() (words int) {
	for _, base := range b.blocks {
		words += 2 << (b.mem.state[base/2] - 1)
	}
	return words
}

// undo frees the blocks from mark on.
func (b *builder) undo(mark int) {
	b.free(b.blocks[mark:])
	b.blocks = b.blocks[:mark]
}

// free frees blocks that no program has seen.
func (b *builder) free(blocks []uint32) {
	for _, base := range blocks {
		delete(b.mem.refs, base)
		b.mem.release(int(base))
	}
}

// room returns the number of children of the node in which a rule may be.
func (b *builder) room(r *rule) int {
	if b.depth == 0 && !b.last {
		return rootCopies
	}
	return b.copies - int(r.copies) + 1
}

// build returns a node for the rules of the region. hid is hidden if a rule above, which covers the region, has hidden others.
func (b *builder) build(rules []int32, hid Node) Node {
	b.built++
	if b.stopped(stepsOfNode + len(rules)) {
		return 0
	}
	// At the root of a group, a rule that covers the class goes to the next group instead of hiding the rules behind it.
	if b.depth > 0 || b.last {
		rules, hid = b.prune(rules, hid)
	}
	switch len(rules) {
	case 0:
		return 0
	case 1:
		b.leave(rules)
		return b.rules[rules[0]].entry | hid
	}
	if b.choiceByHash != nil && b.depth >= b.levels-1 {
		b.moveAhead(rules)
	}
	if b.depth >= MaxDepth || len(rules) <= b.leaf {
		return b.list(rules, hid)
	}

	w, cost, ok := b.choose(rules)
	if b.err != nil {
		return 0
	}
	if !ok || b.betterAsList(rules, cost) {
		return b.list(rules, hid)
	}
	return b.cut(rules, w, hid)
}

// betterAsList reports whether a packet passes a list of the rules sooner than a cut of this cost.
func (b *builder) betterAsList(rules []int32, cost float64) bool {
	if b.choiceByHash != nil {
		return b.depth >= b.levels-1 && cost >= b.listOfSingle(rules)
	}
	return len(rules) <= listsUpTo && cost >= listCost(len(rules))
}

// prune leaves out the rules behind one that matches every key of the region. Then the leaves are marked as hidden: when that rule
// is removed, the others return.
func (b *builder) prune(rules []int32, hid Node) ([]int32, Node) {
	for i, r := range rules {
		if b.rules[r].covers(&b.region) {
			if i < len(rules)-1 {
				return rules[:i+1], hidden
			}
			break
		}
	}
	return rules, hid
}

// cut distributes the rules over the children of a window, builds the children, and returns the cut.
func (b *builder) cut(rules []int32, w window, hid Node) Node {
	size := 1 << w.bits
	mark := len(b.stack)
	defer func() { b.stack = b.stack[:mark] }()

	// Count the rules of each child, and the children of each rule.
	ends := b.push(size + 1)
	kept := b.push(len(rules))[:0]
	children := b.push(len(rules))[:0] // of each rule in kept
	total := int32(0)
	for _, i := range rules {
		r := b.rules[i]
		if !b.childrenOf(r, w) {
			r.ejected = true
			continue
		}
		n := int32(len(b.touched))
		for _, v := range b.touched {
			ends[v+1]++
		}
		if b.stopped(int(n)) {
			return 0
		}
		r.copies += n - 1
		total += n
		kept = append(kept, i)
		children = append(children, n)
	}
	for v := range size {
		ends[v+1] += ends[v]
	}
	if b.work -= int(total); b.work < 0 {
		b.err = errQuota
		return 0
	}

	// Sort the rules by child: those of child v are items[ends[v]:ends[v+1]].
	items := b.push(int(total))
	next := b.push(size)
	copy(next, ends)
	for k, i := range kept {
		b.region.values(b.rules[i], w, math.MaxInt, func(v uint32) {
			items[next[v]] = i
			next[v]++
		})
		if b.stopped(int(children[k])) {
			return 0
		}
	}

	base := b.alloc(size)
	if base < 0 {
		return 0
	}
	b.divideShares(kept, children)
	outer := b.region.enter(w)
	b.depth++
	for v := range size {
		b.region.child(w, uint64(v))
		b.mem.words[base+v] = uint64(b.build(items[ends[v]:ends[v+1]], hid))
		if b.choiceByHash != nil && b.depth == 1 && b.work < workOfSingle/2 && ends[v+1] < total/8 {
			b.err = errQuota // an eighth of the rules took half of the work: the rest would take more than is left
		}
	}
	b.depth--
	b.region.leave(w, outer)
	b.uniteShares(kept, children)
	return newCut(w.word, w.shift, w.bits, base)
}

// childrenOf puts the children of a window that r is in into touched. It returns false if they are too many, and r goes to the
// next group. Below the root, a rule that covers the region stays in any number of children: it hides the rules behind it.
func (b *builder) childrenOf(r *rule, w window) bool {
	note := func(v uint32) { b.touched = append(b.touched, v) }
	limit := math.MaxInt
	if !b.last {
		limit = b.room(r)
	}
	b.touched = b.touched[:0]
	if b.region.values(r, w, limit, note) {
		return true
	}
	if b.depth == 0 || !r.covers(&b.region) {
		return false
	}
	b.touched = b.touched[:0]
	return b.region.values(r, w, math.MaxInt, note)
}

// push returns n zeros from the stack. cut takes them off again. When the stack grows, slices of before keep their memory.
func (b *builder) push(n int) []int32 {
	at := len(b.stack)
	if at+n > cap(b.stack) {
		b.stack = append(make([]int32, 0, 2*cap(b.stack)+n), b.stack...)
	}
	b.stack = b.stack[:at+n]
	clear(b.stack[at:])
	return b.stack[at : at+n : at+n]
}

// list returns a list of the rules. Lists that are equal behind their first rules share a block.
func (b *builder) list(rules []int32, hid Node) Node {
	rules, hid = b.prune(rules, hid)
	if len(rules) == 1 {
		b.leave(rules)
		return b.rules[rules[0]].entry | hid
	}
	if len(rules) > MaxList {
		if b.last {
			b.err = ErrDense
			return 0
		}
		end := len(rules) - 1
		for _, r := range rules[MaxList-1 : end] {
			b.rules[r].ejected = true
		}
		rules = append(slices.Clone(rules[:MaxList-1]), rules[end]) // the last may be the one that covers the region
	}
	b.leave(rules)

	nodes := b.nodes[:0]
	for _, r := range rules {
		nodes = append(nodes, b.rules[r].entry)
	}
	nodes[len(nodes)-1] |= hid
	b.nodes = nodes
	hash := uint64(fnvOffset)
	for _, n := range nodes[1:] {
		hash = mix(hash, uint64(n))
	}
	if base, ok := b.listByHash[hash]; ok && b.isList(int(base), nodes) {
		b.mem.share(int(base))
		return newList(nodes[0], int(base), len(nodes))
	}

	n := newList(nodes[0], 0, len(nodes))
	base := b.alloc(n.size())
	if base < 0 {
		return 0
	}
	putRules(b.mem.words[base:][:n.size()], nodes[1:])
	b.listByHash[hash] = int32(base)
	return newList(nodes[0], base, len(nodes))
}

// The hash by which equal lists and equal nodes are found: FNV-1a over words, with a fold.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func mix(hash, v uint64) uint64 {
	hash = (hash ^ v) * fnvPrime
	return hash ^ hash>>29
}

// isList reports whether the words at base are the rules of a list behind its first.
func (b *builder) isList(base int, rules []Node) bool {
	n := newList(rules[0], base, len(rules))
	if 2<<(b.mem.state[base/2]-1) < n.size() {
		return false
	}
	for i, r := range rules[1:] {
		if n.ruleAt(b.mem.words, i+1) != r {
			return false
		}
	}
	return true
}

// begin prepares the build of a tree of rules, without bounds of memory and work.
func (b *builder) begin(rules []*rule, last bool) {
	b.rules = rules
	b.last = last
	b.copies = copies
	b.nsWord = nsWord
	b.work = math.MaxInt
	b.listByHash = map[uint64]int32{}
	b.choiceByHash = nil
	b.leaves = leaves{}
	for _, r := range rules {
		r.copies = 1
		r.ejected = false
		r.share = 1
	}
}

// order returns the places of all rules.
func (b *builder) order() []int32 {
	order := make([]int32, len(b.rules))
	for i := range order {
		order[i] = int32(i)
	}
	return order
}
