package tree

import "slices"

// Adopt makes an empty set in memory left by an earlier process. Programs may be walking its trees. The old trees remain until Build
// replaces them. If the memory has another format, Adopt clears it.
//
// The caller must have waited for a grace period since the earlier process ended. Otherwise programs may still be in nodes that the
// earlier process had retired.
func Adopt(mem []uint64, o Options) *Set {
	m := &memory{words: mem}
	s := newSet(m, o)
	if mem[versionWord] != Version || !m.adopt() {
		s.clear()
		m.reset()
	}
	s.paths.measure(m)
	return s
}

// adopt marks the blocks of the trees as used and all others as free. If the memory does not contain valid trees, it returns false
// and leaves the words unchanged.
func (m *memory) adopt() bool {
	m.state, m.refs = make([]uint8, len(m.words)/2), map[uint32]int32{}
	var blocks []uint32
	for c := range Classes {
		if !m.mark(m.load(c), 0, &blocks) {
			return false
		}
	}
	slices.Sort(blocks)
	for pass := range 2 { // the first pass only checks
		next := headerWords / 2
		for _, u := range blocks {
			if int(u) < next {
				return false // blocks overlap
			}
			if pass == 1 {
				m.cover(next, int(u))
			}
			next = int(u) + 1<<(m.state[u]-1)
		}
		if pass == 1 {
			m.cover(next, len(m.state))
		}
	}
	return true
}

// mark marks the blocks of a tree as used, and appends them to blocks. It returns false if it meets an invalid node.
func (m *memory) mark(n Node, depth int, blocks *[]uint32) bool {
	if n.Kind() == KindRule {
		return true
	}
	base, order := n.Base(), orderOf(n.size())
	u := base / 2
	if depth > MaxDepth+1 || n.size() == 0 || base < headerWords || base&1 != 0 || u&(1<<order-1) != 0 || u+1<<order > len(m.state) {
		return false
	}
	if was := m.state[u]; was != 0 {
		if int(was) < order+1 {
			return false
		}
		m.share(base)
		return n.Kind() == KindList
	}
	m.state[u] = uint8(order + 1)
	*blocks = append(*blocks, uint32(u))
	step := 0
	switch n.Kind() {
	case KindCut:
		step = 1
	case KindFork:
		step = 2
	default:
		return true
	}
	words := n.size()
	for i := 0; i < words; i += step {
		if !m.mark(m.load(base+i), depth+1, blocks) {
			return false
		}
	}
	return true
}
