package shm

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// entry checks the entry of index i and returns whether it is live; e is a copy of it then.
func (c *checker) entry(i uint32, at place, e *entryMem) (live bool) {
	p := &at.entry().identity
	if isZero(wordsAt(at.entry())) {
		return false
	}
	object, off := fmt.Sprintf("entry %d", i), c.v.entryOffset(i)
	// Behind the mark: a slot in use was below it before.
	id := atomic.LoadUint64(p)
	state, generation := uint32(id>>32), uint32(id)
	if state != entUnused && at.n >= c.v.high(int(i/SegmentLen)) {
		c.add(object, off, "is used, beyond the high-water mark of its segment")
	}
	switch state {
	case entUnused:
		before := len(c.ps)
		c.zero(object, off, bytesOf(at.entry()))
		if len(c.ps) > before && atomic.LoadUint64(p) != id {
			c.ps = c.ps[:before] // a writer has just begun to fill it
		}
		return false
	case entBuilding, entRetired, entLive:
		if generation == 0 {
			c.add(object, off, "is used, with generation 0")
		}
	default:
		c.add(object, off, "state %d is unknown", state)
	}
	if state != entLive {
		return false
	}
	_, slot, err := at.entry().read(e)
	if err != nil {
		return false // gone meanwhile
	}
	before := len(c.ps)
	c.entryText(object, off, e)
	s := &e.slots[slot]
	so := off + entSlots + slot*slotSize
	if s.flags>>4 != 0 {
		c.add(object, so, "flags %#x are unknown", s.flags)
	}
	c.text(object, so+slotBasis, "byte basis", s.basis[:])
	c.text(object, so+slotSource, "source", s.source[:])
	if e.flags>>1 != 0 {
		c.add(object, off+entFlags, "flags %#x are unknown", e.flags)
	}
	b := bytesOf(e)
	for _, r := range [][2]uint64{{entFlags + 4, entName}, {entSeq + 8, entLiveState}} {
		c.zero(object, off+r[0], b[r[0]:r[1]])
	}
	c.live(object, off, at.entry())
	if epoch := epochOf(atomic.LoadUint64(at.seq())); e.born > epoch {
		c.add(object, off+entBorn, "was added in epoch %d, which is %d", e.born, epoch)
	}
	if atomic.LoadUint64(p) != id {
		c.ps = c.ps[:before]
		return false
	}
	return true
}

// live checks the words of the live view as they stand under one look at the first of them.
func (c *checker) live(object string, off uint64, e *entryMem) {
	s, ok := e.readLive()
	switch {
	case !ok: // being changed
	case s.slot.Map == 0 && s.slot != LiveSlot{}:
		c.add(object, off+entLiveState, "names slot %d of no map", s.slot.Slot)
	case s.slot.Slot >= maxLiveCounters:
		c.add(object, off+entLiveState, "names slot %d of map %d, which holds fewer", s.slot.Slot, s.slot.Map)
	}
}

func (c *checker) entryText(object string, at uint64, e *entryMem) {
	if e.name[0] == 0 {
		c.add(object, at+entName, "name is empty")
	}
	c.text(object, at+entName, "name", e.name[:])
	c.text(object, at+entKind, "kind", e.kind[:])
	c.text(object, at+entUnit, "unit", e.unit[:])
	c.text(object, at+entText, "text", e.text[:])

	field, last := e.labels[:], ""
	if field[len(field)-1] != 0 {
		c.add(object, at+entLabels, "labels do not end with NUL")
	}
	for len(field) > 0 && field[0] != 0 {
		s := getString(field)
		key, _, ok := strings.Cut(s, "=")
		if !ok || key <= last || !utf8.ValidString(s) {
			c.add(object, at+entLabels, "label %q is not key=value in order", s)
		}
		last, field = key, field[min(len(s)+1, len(field)):]
	}
	if len(bytes.Trim(field, "\x00")) != 0 {
		c.add(object, at+entLabels, "labels go on after their end")
	}
}

// text checks a padded string.
func (c *checker) text(object string, at uint64, what string, field []byte) {
	n := bytes.IndexByte(field, 0)
	switch {
	case n < 0:
		c.add(object, at, "%s does not end with NUL", what)
	case len(bytes.Trim(field[n:], "\x00")) != 0:
		c.add(object, at, "%s is not padded with NUL", what)
	case !utf8.Valid(field[:n]):
		c.add(object, at, "%s is not UTF-8", what)
	}
}

// blocks checks the blocks of segment n.
func (c *checker) blocks(n int, s *segment) {
	page := uint64(os.Getpagesize())
	start, used := c.v.segmentOffset(n), uint64(blocksUsed(c.v.high(n)))
	for i, copies := range [...]uint64{segCopy0, segCopy1} {
		begin := start + copies + used*copySize
		begin = (begin + page - 1) / page * page // the last copy in use has written to the page before
		c.holes[i] = [2]uint64{begin, c.v.store.nextWritten(begin)}
	}
	for i := range uint32(segmentBlocks) {
		c.block(n, block{s.blocks, i})
	}

	from := uint64(segCopy1 + segmentBlocks*copySize)
	if c.v.store.nextWritten(start+from) < start+segmentSize {
		c.zero(fmt.Sprintf("segment %d", n), start+from, s.m.b[from:])
	}
}

// load copies the copy of a block, read under sequence word s, that stands in the file at at. A block that was never published
// is in a hole of most files, which reads as zeros and would have pages afterwards.
func (c *checker) load(to, from *copyMem, at, s uint64) {
	for _, hole := range c.holes {
		if s == 0 && at >= hole[0] && at+copySize <= hole[1] {
			*to = copyMem{}
			return
		}
	}
	copyWords(wordsAt(to), wordsAt(from))
}

// block checks a block of segment n as it stood under one sequence word.
func (c *checker) block(n int, b block) {
	v, start := c.v, c.v.segmentOffset(n)
	object := fmt.Sprintf("block %d", uint32(n)*segmentBlocks+b.n)
	seqAt, intentAt := start+segSeq+uint64(b.n)*lineSize, start+segIntent+uint64(b.n)*lineSize
	for range maxTries {
		s := atomic.LoadUint64(b.seq())
		before := len(c.ps)
		at := start + []uint64{segCopy0, segCopy1}[s&1] + uint64(b.n)*copySize
		otherAt := start + []uint64{segCopy1, segCopy0}[s&1] + uint64(b.n)*copySize
		var cp copyMem
		c.load(&cp, b.copy(s), at, s)
		c.blockCopy(object, at, &cp, s)
		// No publish stores into the reserved words of either copy.
		var other copyMem
		c.load(&other, b.copy(s^1), otherAt, s)
		if other.reserved() {
			c.add(object, otherAt+cpyEpoch+8, "reserved words of the other copy are not 0")
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
