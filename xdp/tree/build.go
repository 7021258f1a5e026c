package tree

import (
	"errors"
	"math"
	"slices"
)

// builder makes trees in free blocks, one group of one class after the other.
type builder struct {
	mem    *memory
	region region
	rules  []*rule // of the group, ascending rank
	depth  int     // cuts above the node that is being built

	// Bounds of the group.
	last   bool         // there is no next group
	copies int          // leaves of a rule
	nsWord float64      // weight of memory
	words  float64      // nodes of a cut for each of its rules
	leaf   int          // rules that are a list without a look for a cut
	quota  int          // words that are left
	work   int          // that may be done still: copies of rules, and a 32nd of those by which windows are judged
	stop   func() error // Set.stopped
	steps  int          // since the last call of stop
	built  int          // nodes, of all groups and of all changes

	blocks []uint32         // allocated
	lists  map[uint64]int32 // by hash; only blocks that an undo frees together
	err    error

	// Of a set that is one tree.
	chosen map[uint64]choice // by hash: many nodes have equal rules; nil in a group
	levels int
	leaves leaves

	sample  [sampled]int32
	stack   []int32
	counts  []bitCount
	windows []window
	nodes   []Node
	hist    []uint16
	touched []uint32
	spans   []int32
}

// stepsPerStop is the number of steps between two calls of Set.Stop, a fraction of a millisecond. A step is a rule in a child
// of a window. A node takes stepsOfNode and, near a root, millions more.
const (
	stepsPerStop = 1 << 14
	stepsOfNode  = stepsPerStop / 64
)

// errQuota ends the build of a group that takes too many words.
var errQuota = errors.New("tree: over the quota")

// newBuilder returns a builder without blocks, with the scratch memory of the builder before.
func (s *Set) newBuilder() *builder {
	b := s.builder
	if b == nil {
		b = &builder{mem: s.mem, hist: make([]uint16, 1<<MaxBits)}
		s.builder = b
	}
	b.blocks, b.err, b.depth, b.rules = b.blocks[:0], nil, 0, nil
	b.stop = s.stopped
	return b
}

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
		b.steps, b.err = 0, b.stop()
	}
	return b.err != nil
}

// size is the words of all blocks.
func (b *builder) size() (words int) {
	for _, base := range b.blocks {
		words += 2 << (b.mem.state[base/2] - 1)
	}
	return words
}

// undo frees the blocks from mark on, of an unfinished build.
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

// room is the number of children in which a rule may be.
func (b *builder) room(r *rule) int {
	if b.depth == 0 && !b.last {
		return rootCopies
	}
	return b.copies - int(r.copies) + 1
}

// build returns the node of the region for the rules that are in it.
func (b *builder) build(rules []int32, hid Node) Node {
	b.built++
	if b.stopped(stepsOfNode + len(rules)) {
		return 0
	}
	// A rule that covers all packets of a class goes to the next group instead.
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
	if b.chosen != nil && b.depth >= b.levels-1 {
		b.moveAhead(rules)
	}
	if b.depth >= MaxDepth || len(rules) <= b.leaf {
		return b.list(rules, hid)
	}
	w, cost, ok := b.choose(rules)
	if b.err != nil {
		return 0
	}
	if !ok || b.better(rules, cost) {
		return b.list(rules, hid)
	}
	return b.cut(rules, w, hid)
}

// better reports whether the rules are better a list than a cut of this cost.
func (b *builder) better(rules []int32, cost float64) bool {
	if b.chosen != nil {
		return b.depth >= b.levels-1 && cost >= b.listOfSingle(rules)
	}
	return len(rules) <= listsUpTo && cost >= listCost(len(rules))
}

// prune leaves out the rules behind one that matches every key of the region. That rule stays in the tree: when it
// is removed, its leaves tell that there were others.
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

// cut distributes the rules over the children of a window, and builds these.
func (b *builder) cut(rules []int32, w window, hid Node) Node {
	size := 1 << w.bits
	mark := len(b.stack)
	defer func() { b.stack = b.stack[:mark] }()
	ends := b.push(size + 1)
	kept := b.push(len(rules))[:0]
	children := b.push(len(rules))[:0] // of each
	total := int32(0)
	for _, i := range rules {
		r := b.rules[i]
		n := int32(0)
		limit := math.MaxInt
		if !b.last {
			limit = b.room(r)
		}
		b.touched = b.touched[:0]
		if !b.region.values(r, w, limit, func(v uint32) { b.touched = append(b.touched, v) }) {
			if b.depth == 0 || !r.covers(&b.region) {
				r.ejected = true
				continue
			}
			b.touched = b.touched[:0]
			b.region.values(r, w, math.MaxInt, func(v uint32) { b.touched = append(b.touched, v) })
		}
		for _, v := range b.touched {
			ends[v+1]++
			n++
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
	b.divide(kept, children)
	outer := b.region.enter(w)
	b.depth++
	for v := range size {
		b.region.child(w, uint64(v))
		b.mem.words[base+v] = uint64(b.build(items[ends[v]:ends[v+1]], hid))
		if b.chosen != nil && b.depth == 1 && b.work < workOfSingle/2 && ends[v+1] < total/8 {
			b.err = errQuota // the rest will take more than is left
		}
	}
	b.depth--
	b.region.leave(w, outer)
	b.unite(kept, children)
	return newCut(w.word, w.shift, w.bits, base)
}

// push returns n zeros of the stack.
func (b *builder) push(n int) []int32 {
	at := len(b.stack)
	if at+n > cap(b.stack) {
		b.stack = append(make([]int32, 0, 2*cap(b.stack)+n), b.stack...)
	}
	b.stack = b.stack[:at+n]
	clear(b.stack[at:])
	return b.stack[at : at+n : at+n]
}

// list returns the rules as a list. Lists that are equal behind their first rules share a block.
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
	hash := uint64(14695981039346656037)
	for _, r := range rules {
		nodes = append(nodes, b.rules[r].entry)
	}
	nodes[len(nodes)-1] |= hid
	b.nodes = nodes
	for _, n := range nodes[1:] {
		hash = (hash ^ uint64(n)) * 1099511628211
		hash ^= hash >> 29
	}
	if base, ok := b.lists[hash]; ok && b.same(int(base), nodes) {
		b.mem.share(int(base))
		return newList(nodes[0], int(base), len(nodes))
	}
	n := newList(nodes[0], 0, len(nodes))
	base := b.alloc(n.size())
	if base < 0 {
		return 0
	}
	putRules(b.mem.words[base:][:n.size()], nodes[1:])
	b.lists[hash] = int32(base)
	return newList(nodes[0], base, len(nodes))
}

// same reports whether the words at base are the rules of a list behind its first.
func (b *builder) same(base int, rules []Node) bool {
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

// begin prepares the build of a tree of rules.
func (b *builder) begin(rules []*rule, last bool) {
	b.rules, b.last, b.lists, b.chosen = rules, last, map[uint64]int32{}, nil
	b.copies, b.nsWord, b.work = copies, nsWord, math.MaxInt
	b.leaves = leaves{}
	for _, r := range rules {
		r.copies, r.ejected, r.share = 1, false, 1
	}
}

// order is the places of all rules.
func (b *builder) order() []int32 {
	order := make([]int32, len(b.rules))
	for i := range order {
		order[i] = int32(i)
	}
	return order
}
