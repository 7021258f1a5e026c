package tree

import (
	"errors"
	"math/bits"
	"sync/atomic"
)

// ErrFull is returned when the memory is too small for a change. The set is unchanged.
var ErrFull = errors.New("tree: no room in the memory")

// memory is a buddy allocator in units of two words. A block of order n has 1<<n units. Free blocks of one order are linked through
// their own words, which no program reads any more.
type memory struct {
	words []uint64
	state []uint8          // by unit: order+1 at the start of a block, with freeBit if it is free; 0 within a block
	heads [32]uint32       // by order: unit+1 of the first free block, or 0
	refs  map[uint32]int32 // by base of a shared list: the number of nodes pointing to it, less one

	retired []uint32 // blocks waiting for a grace period
	free    int      // words of free blocks
	waiting int      // words of retired blocks

	stored func() // for tests: called after each store visible to programs
}

const freeBit = 0x80

func newMemory(words []uint64) *memory {
	m := &memory{words: words}
	m.reset()
	return m
}

// most returns the limit for the size of the trees in words. A rebuild needs space for the new trees beside the old ones.
func (m *memory) most() int { return len(m.words) * 9 / 20 }

// reset frees everything except the header.
func (m *memory) reset() {
	m.state = make([]uint8, len(m.words)/2)
	m.heads, m.refs, m.retired, m.free, m.waiting = [32]uint32{}, map[uint32]int32{}, nil, 0, 0
	m.cover(headerWords/2, len(m.state))
}

// cover turns the units from first up to end into free blocks.
func (m *memory) cover(first, end int) {
	for u := first; u < end; {
		order := bits.TrailingZeros(uint(u))
		if u == 0 {
			order = 31
		}
		for u+1<<order > end {
			order--
		}
		m.link(uint32(u), order)
		m.free += 2 << order
		u += 1 << order
	}
}

func (m *memory) link(u uint32, order int) {
	head := m.heads[order]
	if head != 0 {
		w := m.words[2*(head-1)]
		m.words[2*(head-1)] = w&0xffffffff | uint64(u+1)<<32
	}
	m.words[2*u] = uint64(head)
	m.heads[order] = u + 1
	m.state[u] = freeBit | uint8(order+1)
}

func (m *memory) unlink(u uint32, order int) {
	w := m.words[2*u]
	next, prev := uint32(w), uint32(w>>32)
	if next != 0 {
		m.words[2*(next-1)] = m.words[2*(next-1)]&0xffffffff | uint64(prev)<<32
	}
	if prev != 0 {
		m.words[2*(prev-1)] = m.words[2*(prev-1)]&^0xffffffff | uint64(next)
	} else {
		m.heads[order] = next
	}
	m.state[u] = 0
}

// orderOf returns the order of the smallest block for n words.
func orderOf(n int) int {
	if n <= 2 {
		return 0
	}
	return bits.Len(uint(n-1)) - 1
}

// alloc allocates a block of at least n words, and returns the index of its first word.
func (m *memory) alloc(n int) (base int, ok bool) {
	want := orderOf(n)
	order := want
	for order < len(m.heads) && m.heads[order] == 0 {
		order++
	}
	if order == len(m.heads) {
		return 0, false
	}
	u := m.heads[order] - 1
	m.unlink(u, order)
	for order > want {
		order--
		m.link(u+1<<order, order)
	}
	m.state[u] = uint8(order + 1)
	m.free -= 2 << order
	return int(2 * u), true
}

// release frees a block. Programs must not be able to reach it.
func (m *memory) release(base int) {
	u := uint32(base / 2)
	order := int(m.state[u]) - 1
	m.free += 2 << order
	m.state[u] = 0
	for {
		buddy := u ^ 1<<order
		if int(buddy) >= len(m.state) || m.state[buddy] != freeBit|uint8(order+1) {
			break
		}
		m.unlink(buddy, order)
		u &^= 1 << order
		order++
	}
	m.link(u, order)
}

// share adds a reference to a block that has one.
func (m *memory) share(base int) { m.refs[uint32(base)]++ }

// drop removes a reference, and reports whether it was the last.
func (m *memory) drop(base int) bool {
	n, ok := m.refs[uint32(base)]
	if !ok {
		return true
	}
	if n == 1 {
		delete(m.refs, uint32(base))
	} else {
		m.refs[uint32(base)] = n - 1
	}
	return false
}

// retire removes a reference from a block that programs may still be reading. The next reclaim frees the block if this was the last.
func (m *memory) retire(base int) {
	if m.drop(base) {
		m.retired = append(m.retired, uint32(base))
		m.waiting += 2 << (m.state[base/2] - 1)
	}
}

// reclaim frees the retired blocks. The caller must have waited for a grace period since the last one was retired.
func (m *memory) reclaim() {
	for _, b := range m.retired {
		m.release(int(b))
	}
	m.retired, m.waiting = m.retired[:0], 0
}

func (m *memory) load(at int) Node { return Node(atomic.LoadUint64(&m.words[at])) }
func (m *memory) store(at int, n Node) {
	atomic.StoreUint64(&m.words[at], uint64(n))
	if m.stored != nil {
		m.stored()
	}
}
