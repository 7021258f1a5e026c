package tree

import (
	"errors"
	"math"
	"slices"
)

// builder builds trees in free blocks, one after the other: the groups of a class, or its single tree. Programs see nothing of them
// until the caller stores a root. After the first error, all methods return early. Then undo frees the blocks.
type builder struct {
	mem *memory
	err error

	// The tree being built.
	rules  []*rule // sorted by rank; elsewhere, an int32 is an index into rules
	region region  // of the current node
	depth  int     // number of cuts above the current node
	last   bool    // there is no further group for ejected rules

	// Its limits.
	copies int     // leaves per rule
	words  float64 // nodes of a cut per rule
	leaf   int     // up to this many rules become a list without looking for a cut
	nsWord float64 // weight of a word of memory
	quota  int     // words left
	work   int     // work left, in copies of rules; judging a window costs 1/32 of that

	// Its blocks.
	blocks     []uint32         // of all trees since newBuilder
	listByHash map[uint64]int32 // bases of lists that may be shared; an undo frees all of them together

	// Of a single tree.
	choiceByHash map[uint64]choice // results of choose, because many nodes have equal rules; nil in a group
	levels       int               // cuts on most ways to a leaf
	leaves       leaves

	stop  func() error // Set.stopped
	steps int          // since the last call of stop
	built int          // nodes built, over all trees and changes

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

// stepsPerStop is the number of steps between two calls of Set.Stop, which is a fraction of a millisecond. A step handles one rule in
// one child of a window. A node takes at least stepsOfNode steps, and near the root millions.
const (
	stepsPerStop = 1 << 14
	stepsOfNode  = stepsPerStop / 64
)

// errQuota ends the build of a tree that exceeds its quota or its work.
var errQuota = errors.New("tree: over the quota")

// newBuilder returns a builder without blocks. It reuses the scratch memory of the last builder.
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

// alloc returns the base of a new block, or -1 after an error.
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

// stopped adds to the steps. It reports whether the build has failed, possibly with the error of Set.Stop.
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

// room returns the number of children in which a rule may be at the current node.
func (b *builder) room(r *rule) int {
	if b.depth == 0 && !b.last {
		return rootCopies
	}
	return b.copies - int(r.copies) + 1
}

// build returns a node for the rules of the region. hid is hidden if rules were already left out further up.
func (b *builder) build(rules []int32, hid Node) Node {
	b.built++
	if b.stopped(stepsOfNode + len(rules)) {
		return 0
	}
	// At the root of a group, a rule that covers the whole class hides nothing. It goes to the next group instead.
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
	if b.moves(len(rules)) {
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

// betterAsList reports whether a list of the rules is faster than a cut of this cost.
func (b *builder) betterAsList(rules []int32, cost float64) bool {
	if b.choiceByHash != nil {
		return b.depth >= b.levels-1 && cost >= b.listOfSingle(rules)
	}
	return len(rules) <= listsUpTo && cost >= b.listOfGroup(rules)
}

// prune drops the rules after one that matches every key of the region, because they cannot win. It returns the mark hidden, which
// goes into the leaves. When the covering rule is removed, rulesOf finds the dropped rules again.
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

// cut distributes the rules to the children of a window, builds these, and returns the cut.
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
			b.err = errQuota // an eighth of the rules took half of the work, so the rest cannot succeed
		}
	}
	b.depth--
	b.region.leave(w, outer)
	b.uniteShares(kept, children)
	return newCut(w.word, w.shift, w.bits, base)
}

// childrenOf sets touched to the children of a window in which r is. If there are too many, it returns false, and r must go to the
// next group. The exception, below the root, is a rule that covers the region. It may be in any number of children, because it
// hides other rules there.
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

// push returns n zeros from the stack of scratch memory. cut pops them. When the stack grows, earlier slices remain valid.
func (b *builder) push(n int) []int32 {
	at := len(b.stack)
	if at+n > cap(b.stack) {
		b.stack = append(make([]int32, 0, 2*cap(b.stack)+n), b.stack...)
	}
	b.stack = b.stack[:at+n]
	clear(b.stack[at:])
	return b.stack[at : at+n : at+n]
}

// list returns a list of the rules. Lists that differ in their first rule only share a block.
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
		rules = append(slices.Clone(rules[:MaxList-1]), rules[end]) // keep the last, which may cover the region
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

// Constants of mix, a variant of FNV-1a over words. It finds equal lists and equal nodes.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func mix(hash, v uint64) uint64 {
	hash = (hash ^ v) * fnvPrime
	return hash ^ hash>>29
}

// isList reports whether the block at base has all rules of a list except the first.
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

// begin prepares the build of a tree, without limits of memory and work.
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

// order returns the indexes of all rules.
func (b *builder) order() []int32 {
	order := make([]int32, len(b.rules))
	for i := range order {
		order[i] = int32(i)
	}
	return order
}
