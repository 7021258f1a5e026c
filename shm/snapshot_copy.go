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

// scratch says how a snapshot takes each block of the segment that it copies. It is part of the Snapshot, so that it need
// not be cleared for each segment.
type scratch struct {
	seqs     [segmentBlocks]uint64 // the sequence word under which the block was taken
	heads    [segmentBlocks]copyHead
	parity   uint64 // bit i: the parity of the copy that block i is taken from
	byIntent uint64 // bit i: block i is taken from the copy that is not current: see pick
}

// take notes that p is the copy of block i to take.
func (c *scratch) take(i int, p pick) {
	c.seqs[i] = p.seq
	c.parity |= p.parity << i
	if p.byIntent {
		c.byIntent |= 1 << i
	}
}

// copyBlocks copies the first len(dst) blocks of s for a snapshot of cycle k.
//
// Copies of one parity lie side by side, and most often all blocks are of one parity. So as many blocks as follow one
// another with one parity are copied in one piece, and their sequence words looked at behind it. A block that was
// published meanwhile is copied again by itself.
//
// next is not nil in a large snapshot: it is the segment that is copied next, or s itself. Its sequence words are
// fetched into the cache meanwhile.
func (v *view) copyBlocks(dst []copyMem, c *scratch, s *segment, k uint64, next *segment, l *Label) error {
	// Between two cycles the current copy of each block is the one to take: none is of a later cycle.
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
		loadFence() // barrier read-fence

		// Most often no block was published meanwhile, and all have one label.
		if c.stand(s.blocks, from, to) && (!between || heads[0].cycle <= k) && alike(heads) {
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
			// A cycle that has begun since the look at cycleBegun may have published the copy: then it is of that cycle.
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

// stand reports whether the blocks from..to-1 were taken from their current copies, and none was published since. It is
// false for a block that was taken from its other copy: that one is looked at by itself.
func (c *scratch) stand(b *blocksMem, from, to int) bool {
	changed := c.byIntent
	for i := from; i < to; i++ {
		changed |= atomic.LoadUint64(&b.seqs[i].word) ^ c.seqs[i]
	}
	return changed == 0
}

// alike reports whether all heads have the cycle and the times of the first.
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

// streamFrom is from how many bytes of blocks on a snapshot is copied past the caches. Go's copy does that too, for one
// piece of that size: to read the lines that are overwritten would cost half as much again.
const streamFrom = 1 << 20

// large reports whether a snapshot of those segments is copied past the caches.
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

// pick is the copy of a block that suits a snapshot. The current copy stands as long as the sequence word is seq. The
// other copy, byIntent, stands as long as the intent word is: the next publish overwrites it, and announces that first.
type pick struct {
	seq, parity uint64
	byIntent    bool
}

// pick chooses the copy of b under sequence word s for a snapshot of cycle k.
//
// If the current copy was published in the cycle that is going on, the copy before it may be of cycle k. That copy is lost
// once the next publish is announced, and for ever if the writer was killed there.
func (b block) pick(s, k uint64) pick {
	if atomic.LoadUint64(&b.copy(s).cycle) > k &&
		atomic.LoadUint64(&b.copy(s^1).cycle) == k && atomic.LoadUint64(b.intent()) == s {
		return pick{s, s&1 ^ 1, true}
	}
	return pick{s, s & 1, false}
}

// stands reports whether the copy that p chose has not changed since.
func (p pick) stands(b block) bool {
	if p.byIntent {
		return atomic.LoadUint64(b.intent()) == p.seq
	}
	return atomic.LoadUint64(b.seq()) == p.seq
}

// copyOut copies the copy of b that suits a snapshot of cycle k. It returns false if the writer published at each of
// maxTries tries.
func (b block) copyOut(dst *copyMem, k uint64) bool {
	for range maxTries {
		p := b.pick(atomic.LoadUint64(b.seq()), k) // barrier read-acquire
		copyWords(wordsAt(dst), wordsAt(b.copy(p.parity)))
		loadFence() // barrier read-fence
		if p.stands(b) {
			return true
		}
	}
	return false
}

// recordOut reads a record's value, and returns the sequence word under which it stood and the cycle of the value. ok is
// false if the writer published at each of maxTries tries.
func (v *view) recordOut(r *recordMem, dst *Value) (s, cycle uint64, ok bool) {
	for range maxTries {
		s = atomic.LoadUint64(&r.seq) // barrier read-acquire
		*dst = loadValue(&r.slots[s&1])
		low := atomic.LoadUint32(&r.cycles[s&1])
		loadFence() // barrier read-fence
		if atomic.LoadUint64(&r.seq) == s {
			// The record holds the low half of its cycle. cycleBegun gives the rest: loaded after the record, it is
			// not below the record's cycle, and less than 2^32 above it (restamp).
			begun := atomic.LoadUint64(&v.hdr.cycleBegun)
			return s, begun - uint64(uint32(begun)-low), true
		}
	}
	return 0, 0, false
}
