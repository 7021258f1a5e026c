package shm

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

// blocks checks the blocks of segment n, and the bytes behind them.
func (c *checker) blocks(n int, s *segment) {
	c.findHoles(n)
	for i := range uint32(segmentBlocks) {
		c.block(n, block{s.blocks, i})
	}

	start := c.v.segmentOffset(n)
	from := uint64(segCopy1 + segmentBlocks*copySize)
	if c.v.store.nextWritten(start+from) < start+segmentSize {
		c.zero(fmt.Sprintf("segment %d", n), start+from, s.m.b[from:])
	}
}

// findHoles sets c.holes for segment n.
func (c *checker) findHoles(n int) {
	page := uint64(os.Getpagesize())
	start := c.v.segmentOffset(n)
	used := uint64(blocksUsed(c.v.high(n)))
	for i, copies := range [...]uint64{segCopy0, segCopy1} {
		begin := start + copies + used*copySize
		begin = (begin + page - 1) / page * page // the last copy in use may have written to the rest of its page
		c.holes[i] = [2]uint64{begin, c.v.store.nextWritten(begin)}
	}
}

// load copies one copy of a block, read under sequence word s, to to. at is where it is in the file. A block that was never
// published usually is in a hole. load does not touch the hole, which is zero, because each read would allocate a page.
func (c *checker) load(to, from *copyMem, at, s uint64) {
	for _, hole := range c.holes {
		if s == 0 && at >= hole[0] && at+copySize <= hole[1] {
			*to = copyMem{}
			return
		}
	}
	copyWords(wordsAt(to), wordsAt(from))
}

// block checks a block of segment n, read under one sequence word. If the writer published meanwhile, block drops what it
// found and tries again.
func (c *checker) block(n int, b block) {
	v, start := c.v, c.v.segmentOffset(n)
	object := fmt.Sprintf("block %d", uint32(n)*segmentBlocks+b.n)
	seqAt := start + segSeq + uint64(b.n)*lineSize
	intentAt := start + segIntent + uint64(b.n)*lineSize
	copyAt := [2]uint64{start + segCopy0 + uint64(b.n)*copySize, start + segCopy1 + uint64(b.n)*copySize}
	for range maxTries {
		s := atomic.LoadUint64(b.seq())
		before := len(c.ps)

		var current, other copyMem
		at := copyAt[s&1]
		c.load(&current, b.copy(s), at, s)
		c.blockCopy(object, at, &current, s)
		c.load(&other, b.copy(s^1), copyAt[s&1^1], s)
		if other.reserved() { // wrong even during a publish, which never stores there
			c.add(object, copyAt[s&1^1]+cpyEpoch+8, "reserved words of the other copy are not 0")
		}

		c.liveBits(object, at, n, b, current.live)
		if in := atomic.LoadUint64(b.intent()); in != s && in != nextSeq(s, false) && in != nextSeq(s, true) && v.stale() == nil {
			c.add(object, intentAt, "intent %#x does not follow sequence %#x", in, s)
		}
		if begun := atomic.LoadUint64(&v.hdr.cycleBegun); current.cycle > begun {
			c.add(object, at+cpyCycle, "published in cycle %d, only %d were begun", current.cycle, begun)
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

// liveBits compares the live bits of a copy of block b with the states of the entries. at is where the copy is in the file.
func (c *checker) liveBits(object string, at uint64, n int, b block, live uint64) {
	for row := range uint32(BlockLen) {
		k := b.n*BlockLen + row
		set := live>>row&1 == 1
		if !set && k >= c.written[n] {
			continue // the entry is in a hole: reading it would allocate a page
		}
		state := atomic.LoadUint64(&b.m.entries[k].identity) >> 32
		if set && state == entUnused || !set && state == entLive {
			c.add(object, at+cpyLive, "row %d: live bit %v, entry in state %d", row, set, state)
		}
	}
}

// reserved reports whether a reserved word is not 0.
func (cp *copyMem) reserved() bool { return slices.Max(wordsAt(cp)[cpyEpoch/8+1:cpyValues/8]) != 0 }

// blockCopy checks a copy published under sequence word s. at is where it is in the file.
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

	oldest, newest := int64(0), int64(0) // not by copyMem.bounds, which is the code to check
	for row, val := range cp.values {
		if cp.live>>row&1 == 0 && val != (Value{}) {
			c.add(object, at+cpyValues+uint64(row)*valueSize, "row %d belongs to no counter and holds %+v", row, val)
		}
		if sampled := val.SampledAt; sampled != 0 {
			if oldest == 0 || sampled < oldest {
				oldest = sampled
			}
			newest = max(newest, sampled)
		}
	}
	if oldest != cp.oldest || newest != cp.newest {
		c.add(object, at+cpyOldest, "says sampled from %d to %d, its values are from %d to %d", cp.oldest, cp.newest, oldest, newest)
	}
}

// records checks the records of segment n.
func (c *checker) records(n int, s *segment) {
	for k := range uint32(SegmentLen) {
		c.record(n, place{s, k})
	}
}

func (c *checker) record(n int, p place) {
	v, r, e := c.v, p.record(), p.entry()
	if atomic.LoadUint64(&e.identity) == 0 && isZero(wordsAt(r)) {
		return
	}

	object := fmt.Sprintf("record %d", uint32(n)*SegmentLen+p.n)
	at := v.segmentOffset(n) + segRecords + uint64(p.n)*recordSize
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

// history checks the ring: every record that a reader can read must have the number of its place.
func (c *checker) history() {
	v, h := c.v, c.v.hdr
	size := uint64(len(v.history))
	tail := atomic.LoadUint64(&h.historyTail)
	intent := atomic.LoadUint64(&h.historyIntent)
	again := atomic.LoadUint64(&h.historyTail) // the writer may append meanwhile
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
		c.historyRecord(n, headerSize+slot*historySize, &rec)
	}
}

// historyRecord checks the record that follows n others. at is where it is in the file.
func (c *checker) historyRecord(n, at uint64, rec *historyMem) {
	object := fmt.Sprintf("history record %d", n+1)
	if rec.position != n+1 {
		c.add(object, at, "has number %d", rec.position)
	}
	if slots := c.v.declared() * SegmentLen; int(rec.index) >= slots {
		c.add(object, at+hisIndex, "is of counter %d of %d", rec.index, slots)
	}
	if begun := atomic.LoadUint64(&c.v.hdr.cycleBegun); rec.cycle > begun {
		c.add(object, at+hisCycle, "is of cycle %d, only %d were begun", rec.cycle, begun)
	}
}
