package shm

import (
	"math/bits"
	"sync/atomic"
)

func (v *view) copyRecords(dst []recordCopy, s *segment, l *Label) error {
	for i := range dst {
		rc := &dst[i]
		seq, cycle, ok := v.recordOut(&s.records.records[i], &rc.value)
		if !ok {
			return ErrBusy
		}
		rc.epoch = epochOf(seq)
		if at := rc.value.SampledAt; at != 0 {
			l.add(cycle, at, at, 1)
		}
	}
	return nil
}

// scratch says which copy of each block a snapshot takes from the current segment. It is part of the Snapshot, so that it need
// not be cleared for each segment.
type scratch struct {
	seqs     [segmentBlocks]uint64 // the sequence word that the choice was made under
	heads    [segmentBlocks]copyHead
	parity   uint64 // bit i: the parity of the copy to take of block i
	byIntent uint64 // bit i: take the copy of block i that is not current: see pick
}

// take notes the copy to take of block i.
func (c *scratch) take(i int, p pick) {
	c.seqs[i] = p.seq
	c.parity |= p.parity << i
	if p.byIntent {
		c.byIntent |= 1 << i
	}
}

// copyBlocks copies the first len(dst) blocks of s for a snapshot of cycle k.
//
// Copies of one parity are adjacent in memory, and usually all blocks have one parity. So copyBlocks copies each run of
// blocks with one parity in one piece, and checks their sequence words afterwards. It copies a block that was published
// meanwhile again by itself.
//
// A large snapshot passes in next the segment to be copied after s, or s itself for the last one. copyBlocks prefetches its
// sequence words. next is nil in a small one.
func (v *view) copyBlocks(dst []copyMem, c *scratch, s *segment, k uint64, next *segment, l *Label) error {
	// Between two cycles take the current copy of each block, because none can be of a later cycle.
	c.parity, c.byIntent = 0, 0
	between := atomic.LoadUint64(&v.hdr.cycleBegun) <= k
	for i := range dst {
		b := block{s.blocks, uint32(i)}
		seq := atomic.LoadUint64(b.seq()) // barrier read-acquire
		if between {
			c.seqs[i] = seq
			c.parity |= seq & 1 << i
		} else {
			c.take(i, b.pick(seq, k))
		}
	}

	for from := 0; from < len(dst); {
		// Copy the blocks up to the first one of the other parity.
		parity := c.parity >> from & 1
		to := min(len(dst), from+bits.TrailingZeros64((c.parity^-parity)>>from))
		src, heads := s.blocks.copies[parity][from:to], c.heads[from:to]
		if next == nil {
			copyCopies(dst[from:to], src, heads)
		} else {
			streamCopies(dst[from:to], src, heads, &next.blocks.seqs)
		}
		loadFence() // barrier read-fence: the copies before the second look at the sequence words

		// Usually no block was published meanwhile, and all have one label.
		if c.unchanged(s.blocks, from, to) && (!between || heads[0].cycle <= k) && alike(heads) {
			if h := heads[0]; h.newest != 0 {
				l.add(h.cycle, h.oldest, h.newest, to-from)
			}
			from = to
			continue
		}

		for i := from; i < to; i++ {
			b, h := block{s.blocks, uint32(i)}, &c.heads[i]
			word := b.seq()
			if c.byIntent>>i&1 == 1 {
				word = b.intent()
			}
			// A cycle may have begun after we looked at cycleBegun, and have published this copy. Its number is above k then.
			if atomic.LoadUint64(word) != c.seqs[i] || between && h.cycle > k {
				if !b.copyOut(&dst[i], k) {
					return ErrBusy
				}
				*h = dst[i].head()
			}
			if h.newest != 0 {
				l.add(h.cycle, h.oldest, h.newest, 1)
			}
		}
		from = to
	}
	return nil
}

// unchanged reports whether the blocks from..to-1 were taken from their current copies, and none was published since. It returns
// false if any was taken from its other copy: the caller then checks each block by itself.
func (c *scratch) unchanged(b *blocksMem, from, to int) bool {
	changed := c.byIntent
	for i := from; i < to; i++ {
		changed |= atomic.LoadUint64(&b.seqs[i].word) ^ c.seqs[i]
	}
	return changed == 0
}

// alike reports whether all heads have the same cycle and times.
func alike(heads []copyHead) bool {
	differ := uint64(0)
	first := heads[0]
	for i := range heads {
		h := &heads[i]
		differ |= h.cycle ^ first.cycle | uint64(h.oldest^first.oldest) | uint64(h.newest^first.newest)
	}
	return differ == 0
}

// copyHead holds the words of a copy that a label needs.
type copyHead struct {
	cycle          uint64
	oldest, newest int64
	_              uint64 // streamAVX2 stores 32 bytes
}

// head returns the head of a copy that is the caller's own.
func (c *copyMem) head() copyHead {
	return copyHead{cycle: c.cycle, oldest: c.oldest, newest: c.newest}
}

// streamFrom is the size of a snapshot, in bytes of blocks, from which on its stores bypass the caches. Otherwise the CPU would
// first read each line that it overwrites, which makes the copy half as expensive again. Go's copy does the same for one piece
// of that size.
const streamFrom = 1 << 20

// large reports whether a snapshot of those segments should bypass the caches.
func (v *view) large(list []*segment) bool {
	used := uint32(0)
	for n, s := range list {
		if s.kind == kindBlocks {
			used += blocksUsed(v.high(n))
		}
	}
	return used >= streamFrom/copySize
}

// copyCopies copies a run of blocks, and their heads.
func copyCopies(dst, src []copyMem, heads []copyHead) {
	copyWords(wordsOf(dst), wordsOf(src))
	for i := range dst {
		heads[i] = dst[i].head()
	}
}

// pick is the copy of a block to take for a snapshot. The current copy does not change as long as the sequence word is seq. The
// other copy (byIntent) does not change as long as the intent word is seq: the next publish overwrites it, but announces that
// first, with a store fence.
type pick struct {
	seq, parity uint64
	byIntent    bool
}

// pick chooses the copy of b under sequence word s for a snapshot of cycle k.
//
// If the current copy was published in cycle k + 1, the other copy may be of cycle k, and is the one to take. It is lost once the
// writer announces the next publish, and stays lost if the writer is killed there: pick takes the current copy then.
func (b block) pick(s, k uint64) pick {
	if atomic.LoadUint64(&b.copy(s).cycle) > k &&
		atomic.LoadUint64(&b.copy(s^1).cycle) == k && atomic.LoadUint64(b.intent()) == s {
		return pick{s, s&1 ^ 1, true}
	}
	return pick{s, s & 1, false}
}

// unchanged reports whether the chosen copy has not changed since.
func (p pick) unchanged(b block) bool {
	if p.byIntent {
		return atomic.LoadUint64(b.intent()) == p.seq
	}
	return atomic.LoadUint64(b.seq()) == p.seq
}

// copyOut copies block b to dst for a snapshot of cycle k. It returns false if the writer published during each of maxTries
// tries.
func (b block) copyOut(dst *copyMem, k uint64) bool {
	for range maxTries {
		p := b.pick(atomic.LoadUint64(b.seq()), k) // barrier read-acquire
		copyWords(wordsAt(dst), wordsAt(b.copy(p.parity)))
		loadFence() // barrier read-fence
		if p.unchanged(b) {
			return true
		}
	}
	return false
}

// recordOut reads a record's value into dst. It returns the sequence word that the value was read under, and the value's cycle.
// ok is false if the writer published during each of maxTries tries.
func (v *view) recordOut(r *recordMem, dst *Value) (s, cycle uint64, ok bool) {
	for range maxTries {
		s = atomic.LoadUint64(&r.seq) // barrier read-acquire
		*dst = loadValue(&r.slots[s&1])
		low := atomic.LoadUint32(&r.cycles[s&1])
		loadFence() // barrier read-fence
		if atomic.LoadUint64(&r.seq) == s {
			// The record has only the low half of its cycle. Take the high half from cycleBegun. It must be loaded after
			// the record: then it is at least the record's cycle, and less than 2^32 above it, which restamp sees to.
			begun := atomic.LoadUint64(&v.hdr.cycleBegun)
			return s, begun - uint64(uint32(begun)-low), true
		}
	}
	return 0, 0, false
}
