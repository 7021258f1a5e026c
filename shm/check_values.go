package shm

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// blocks checks the blocks of segment n.
func (c *checker) blocks(n int, s *segment) {
	for i := range uint32(segmentBlocks) {
		c.block(n, block{s.blocks, i})
	}
	from := uint64(segCopy1 + segmentBlocks*copySize)
	c.zero(fmt.Sprintf("segment %d", n), c.v.segmentOffset(n)+from, s.m.b[from:])
}

// block checks a block of segment n as it stood under one sequence word.
func (c *checker) block(n int, b block) {
	v, start := c.v, c.v.segmentOffset(n)
	object := fmt.Sprintf("block %d", uint32(n)*segmentBlocks+b.n)
	seqAt, intentAt := start+segSeq+uint64(b.n)*lineSize, start+segIntent+uint64(b.n)*lineSize
	for range maxTries {
		s := atomic.LoadUint64(b.seq())
		before := len(c.ps)
		var cp copyMem
		copyWords(wordsAt(&cp), wordsAt(b.copy(s)))
		at := start + []uint64{segCopy0, segCopy1}[s&1] + uint64(b.n)*copySize
		c.blockCopy(object, at, &cp, s)
		// No publish stores into the reserved words of either copy.
		var other copyMem
		copyWords(wordsAt(&other), wordsAt(b.copy(s^1)))
		if other.reserved() {
			c.add(object, start+[]uint64{segCopy1, segCopy0}[s&1]+uint64(b.n)*copySize+cpyEpoch+8, "reserved words of the other copy are not 0")
		}
		for row := range uint32(BlockLen) {
			set := cp.live>>row&1 == 1
			if !set && b.n*BlockLen+row >= c.written[n] {
				continue
			}
			state := atomic.LoadUint64(&b.m.entries[b.n*BlockLen+row].identity) >> 32
			if set && state == entUnused || !set && state == entLive {
				c.add(object, at+cpyLive, "row %d: live bit %v, entry in state %d", row, set, state)
			}
		}
		if in := atomic.LoadUint64(b.intent()); in != s && in != nextSeq(s, false) && in != nextSeq(s, true) && v.stale() == nil {
			c.add(object, intentAt, "intent %#x does not follow sequence %#x", in, s)
		}
		if begun := atomic.LoadUint64(&v.hdr.cycleBegun); cp.cycle > begun {
			c.add(object, at+cpyCycle, "published in cycle %d, only %d were begun", cp.cycle, begun)
		}
		if b.n >= blocksUsed(v.high(n)) && s != 0 {
			c.add(object, seqAt, "was published, beyond the high-water mark of its segment")
		}
		loadFence()
		if atomic.LoadUint64(b.seq()) == s {
			c.zero(object, seqAt+8, bytesOf(&b.m.seqs[b.n])[8:])
			c.zero(object, intentAt+8, bytesOf(&b.m.intents[b.n])[8:])
			return
		}
		c.ps = c.ps[:min(before, len(c.ps))]
	}
}

// reserved tells whether a reserved word is not 0.
func (cp *copyMem) reserved() bool { return slices.Max(wordsAt(cp)[cpyEpoch/8+1:cpyValues/8]) != 0 }

// blockCopy checks the header of a published copy.
func (c *checker) blockCopy(object string, at uint64, cp *copyMem, s uint64) {
	if cp.epoch != epochOf(s) {
		c.add(object, at+cpyEpoch, "epoch %d, published under %d", cp.epoch, epochOf(s))
	}
	if s == 0 && *cp != (copyMem{}) {
		c.add(object, at, "was never published and is not zero")
	}
	if cp.reserved() {
		c.add(object, at+cpyEpoch+8, "reserved words are not 0")
	}
	oldest, newest := int64(0), int64(0) // found out in another way than the writer does
	for row, val := range cp.values {
		if cp.live>>row&1 == 0 && val != (Value{}) {
			c.add(object, at+cpyValues+uint64(row)*valueSize, "row %d belongs to no counter and holds %+v", row, val)
		}
		if at := val.SampledAt; at != 0 {
			if oldest == 0 || at < oldest {
				oldest = at
			}
			newest = max(newest, at)
		}
	}
	if oldest != cp.oldest || newest != cp.newest {
		c.add(object, at+cpyOldest, "says sampled from %d to %d, its values are from %d to %d", cp.oldest, cp.newest, oldest, newest)
	}
}

func (c *checker) record(n int, p place) {
	v, r, e := c.v, p.record(), p.entry()
	if atomic.LoadUint64(&e.identity) == 0 && isZero(wordsAt(r)) {
		return
	}
	object, at := fmt.Sprintf("record %d", uint32(n)*SegmentLen+p.n), v.segmentOffset(n)+segRecords+uint64(p.n)*recordSize
	if id := atomic.LoadUint64(&e.identity); id>>32 == entUnused {
		var copied recordMem
		copyWords(wordsAt(&copied), wordsAt(r))
		if copied != (recordMem{}) && atomic.LoadUint64(&e.identity) == id {
			c.add(object, at, "was never used and is not zero")
		}
		return
	}
	var val Value
	s, cycle, ok := v.recordOut(r, &val)
	if begun := atomic.LoadUint64(&v.hdr.cycleBegun); ok && cycle > begun {
		c.add(object, at+recCycle, "slot %d published in cycle %d, only %d were begun", s&1, cycle, begun)
	}
}

// history checks the ring: every record that can be read has its own number.
func (c *checker) history() {
	v, h := c.v, c.v.hdr
	size := uint64(len(v.history))
	tail := atomic.LoadUint64(&h.historyTail)
	intent := atomic.LoadUint64(&h.historyIntent)
	again := atomic.LoadUint64(&h.historyTail)
	switch {
	case size == 0 && (tail|intent) != 0:
		c.add("header", hdrHistoryTail, "there is no history, but it holds %d records", tail)
		return
	case size == 0:
		return
	case intent < tail || intent > again+1:
		c.add("header", hdrHistoryIntent, "record %d is being written, %d are complete", intent, again)
		return
	}
	for n := intent - min(intent, size); n < tail && !c.full(); n++ {
		slot := n & (size - 1)
		var rec historyMem
		copyWords(wordsAt(&rec), wordsAt(&v.history[slot]))
		loadFence()
		if atomic.LoadUint64(&h.historyIntent) > n+size {
			continue // overwritten meanwhile
		}
		object, at := fmt.Sprintf("history record %d", n+1), headerSize+slot*historySize
		if rec.position != n+1 {
			c.add(object, at, "has number %d", rec.position)
		}
		if slots := v.declared() * SegmentLen; int(rec.index) >= slots {
			c.add(object, at+hisIndex, "is of counter %d of %d", rec.index, slots)
		}
		if begun := atomic.LoadUint64(&h.cycleBegun); rec.cycle > begun {
			c.add(object, at+hisCycle, "is of cycle %d, only %d were begun", rec.cycle, begun)
		}
	}
}
