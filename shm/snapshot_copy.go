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

// scratch holds words about the blocks of one segment while a snapshot copies them. It is part of the
// Snapshot, so that it need not be cleared for each segment.
type scratch struct {
	seqs     [segmentBlocks]uint64 // under which each block was taken
	heads    [segmentBlocks]copyHead
	parity   uint64 // bit i: of the copy that block i was taken from
	byIntent uint64 // bit i: that is not the current one
}

// take notes which copy of block i suits a snapshot.
func (c *scratch) take(i int, p pick) {
	c.seqs[i] = p.seq
	c.parity |= p.parity << i
	if p.byIntent {
		c.byIntent |= 1 << i
	}
}

// copyBlocks copies the first blocks of s for a snapshot of cycle k. Copies of one parity lie side by side, and most
// often all blocks are of one: as many as follow one another are copied in one piece, and the sequence words looked at
// behind it. A block that was published meanwhile is copied again by itself. next is not nil in a large snapshot: the
// segment whose sequence words are looked at then.
func (v *view) copyBlocks(dst []copyMem, c *scratch, s *segment, k uint64, next *segment, l *Label) error {
	c.parity, c.byIntent = 0, 0
	between := atomic.LoadUint64(&v.hdr.cycleBegun) <= k // no cycle is going on: each block's current copy is of k
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
			// Between cycles, a copy of a later one is of the cycle that has begun since.
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

// stand tells whether no block in the half-open range was published since its current copy was taken.
func (c *scratch) stand(b *blocksMem, from, to int) bool {
	changed := c.byIntent
	for i := from; i < to; i++ {
		changed |= atomic.LoadUint64(&b.seqs[i].word) ^ c.seqs[i]
	}
	return changed == 0
}

// alike tells whether all heads have the cycle and the times of the first.
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

// head is of a copy that the caller has copied.
func (c *copyMem) head() copyHead {
	return copyHead{cycle: c.cycle, oldest: c.oldest, newest: c.newest}
}

// streamFrom is how many bytes of blocks a snapshot copies past the caches, as Go's copy does in one piece of that
// size: reading the lines that are overwritten would cost half as much again.
const streamFrom = 1 << 20

// large tells whether a snapshot of those segments is copied past the caches.
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

// pick is the copy of a block that suits a snapshot, by its parity. It stands as long as
// the sequence word is seq; if it is not the current one, as long as the intent word is.
type pick struct {
	seq, parity uint64
	byIntent    bool
}

// pick chooses the copy of b under sequence word s for a snapshot of cycle k.
func (b block) pick(s, k uint64) pick {
	if atomic.LoadUint64(&b.copy(s).cycle) > k &&
		// Published in the cycle that is going on. The copy before it stands until the next publish is announced: after
		// that it is lost, for ever when the writer was killed there.
		atomic.LoadUint64(&b.copy(s^1).cycle) == k && atomic.LoadUint64(b.intent()) == s {
		return pick{s, s&1 ^ 1, true}
	}
	return pick{s, s & 1, false}
}

// stands tells whether the copy that p chose has not changed since.
func (p pick) stands(b block) bool {
	if p.byIntent {
		return atomic.LoadUint64(b.intent()) == p.seq
	}
	return atomic.LoadUint64(b.seq()) == p.seq
}

// copyOut copies the copy of b that suits a snapshot of cycle k.
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

// recordOut reads a record, the sequence word it was read under, and its cycle.
func (v *view) recordOut(r *recordMem, dst *Value) (s, cycle uint64, ok bool) {
	for range maxTries {
		s = atomic.LoadUint64(&r.seq) // barrier read-acquire
		*dst = loadValue(&r.slots[s&1])
		low := atomic.LoadUint32(&r.cycles[s&1])
		loadFence() // barrier read-fence
		if atomic.LoadUint64(&r.seq) == s {
			// Loaded after the record: not before the cycle it names.
			begun := atomic.LoadUint64(&v.hdr.cycleBegun)
			return s, begun - uint64(uint32(begun)-low), true
		}
	}
	return 0, 0, false
}
