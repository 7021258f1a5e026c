package shm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// entry checks entry i and answers whether it is live; e is a copy of it then.
func (c *checker) entry(i uint32, e *entryMem) (live bool) {
	v := c.v
	object, at := fmt.Sprintf("entry %d", i), v.entryOffset(i)
	p := &v.entries[i].identity
	id := atomic.LoadUint64(p)
	state, generation := uint32(id>>32), uint32(id)
	if high := v.isHigh(i); high && (state == entLive || state == entRetired) {
		c.add(object, at, "is used, beyond the header's high-water mark")
	}
	switch state {
	case entUnused:
		before := len(c.ps)
		c.zero(object, at, at+entrySize)
		if len(c.ps) > before && atomic.LoadUint64(p) != id {
			c.ps = c.ps[:before] // a writer has just begun to fill it
		}
		return false
	case entBuilding, entRetired, entLive:
		if generation == 0 {
			c.add(object, at, "is used, with generation 0")
		}
	default:
		c.add(object, at, "state %d is unknown", state)
	}
	if state != entLive {
		return false
	}
	_, slot, err := v.readEntry(i, e)
	if err != nil {
		return false // gone meanwhile
	}
	before := len(c.ps)
	c.entryText(object, at, e)
	s := &e.slots[slot]
	so := at + entSlots + slot*slotSize
	if s.flags>>4 != 0 {
		c.add(object, so, "flags %#x are unknown", s.flags)
	}
	c.text(object, so+slotBasis, "byte basis", s.basis[:])
	c.text(object, so+slotSource, "source", s.source[:])
	if e.flags>>1 != 0 {
		c.add(object, at+entFlags, "flags %#x are unknown", e.flags)
	}
	for _, r := range [][2]uint64{{entFlags + 4, entName}, {entSeq + 8, entSlots}} {
		c.zero(object, at+r[0], at+r[1])
	}
	if epoch := epochOf(atomic.LoadUint64(v.seqOf(i))); e.born > epoch {
		c.add(object, at+entBorn, "was added in epoch %d, which is %d", e.born, epoch)
	}
	if atomic.LoadUint64(p) != id {
		c.ps = c.ps[:before]
		return false
	}
	return true
}

// isHigh tells whether index i was never used by the header's account.
func (v *view) isHigh(i uint32) bool {
	blocks, records := v.high()
	if n := v.counters(); i >= n {
		return int(i-n) >= records
	}
	return int(i/BlockLen) >= blocks
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

// block checks block i as it stood under one sequence word.
func (c *checker) block(i uint32) {
	v, b := c.v, &c.v.blocks[i]
	object, at := fmt.Sprintf("block %d", i), v.table[secBlocks].offset+uint64(i)*blockSize
	for range maxTries {
		s := atomic.LoadUint64(&b.seq)
		before := len(c.ps)
		var cp copyMem
		copyWords(words(&cp), words(&b.copies[s&1]))
		co := at + blkCopy + s&1*copySize
		c.blockCopy(object, co, &cp, s)
		for row := range uint32(BlockLen) {
			state := atomic.LoadUint64(&v.entries[i*BlockLen+row].identity) >> 32
			set := cp.live>>row&1 == 1
			if set && state == entUnused || !set && state == entLive {
				c.add(object, co+cpyLive, "row %d: live bit %v, entry in state %d", row, set, state)
			}
		}
		if in := atomic.LoadUint64(&b.intent); in != s && in != nextSeq(s, false) && in != nextSeq(s, true) {
			c.add(object, at+blkIntent, "intent %#x does not follow sequence %#x", in, s)
		}
		if begun := atomic.LoadUint64(&v.hdr.cycleBegun); cp.cycle > begun {
			c.add(object, co+cpyCycle, "published in cycle %d, only %d were begun", cp.cycle, begun)
		}
		if blocks, _ := v.high(); int(i) >= blocks && s != 0 {
			c.add(object, at, "was published, beyond the header's high-water mark")
		}
		loadFence()
		if atomic.LoadUint64(&b.seq) == s {
			c.zero(object, at+blkSeq+8, at+blkCopy)
			c.zero(object, at+blkIntent+8, at+blockSize)
			return
		}
		c.ps = c.ps[:min(before, len(c.ps))]
	}
}

// blockCopy checks what a published copy says of itself.
func (c *checker) blockCopy(object string, at uint64, cp *copyMem, s uint64) {
	if cp.epoch != epochOf(s) {
		c.add(object, at+cpyEpoch, "epoch %d, published under %d", cp.epoch, epochOf(s))
	}
	if s == 0 && *cp != (copyMem{}) {
		c.add(object, at, "was never published and is not zero")
	}
	if slices.Max(words(cp)[cpyEpoch/8+1:cpyValues/8]) != 0 {
		c.add(object, at+cpyEpoch+8, "reserved words are not 0")
	}
	for row, val := range cp.values {
		if cp.live>>row&1 == 0 && val != (Value{}) {
			c.add(object, at+cpyValues+uint64(row)*valueSize, "row %d belongs to no counter and holds %+v", row, val)
		}
	}
	oldest, newest := int64(0), int64(0) // found out in another way than the writer does
	for _, val := range cp.values {
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

// record checks latency record i.
func (c *checker) record(i uint32) {
	v, r := c.v, &c.v.records[i]
	object, at := fmt.Sprintf("record %d", i), v.table[secRecords].offset+uint64(i)*recordSize
	e := &v.entries[v.counters()+i]
	if id := atomic.LoadUint64(&e.identity); id>>32 == entUnused {
		var copied recordMem
		copyWords(words(&copied), words(r))
		if copied != (recordMem{}) && atomic.LoadUint64(&e.identity) == id {
			c.add(object, at, "was never used and is not zero")
		}
		return
	}
	var val Value
	s, cycle, ok := v.recordOut(i, &val)
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
	base := atomic.LoadUint64(&h.historyBase)
	again := atomic.LoadUint64(&h.historyTail)
	switch {
	case size == 0 && (tail|intent|base) != 0:
		c.add("header", hdrHistoryTail, "there is no history, but it holds %d records", tail)
		return
	case size == 0:
		return
	case intent < tail || intent > again+1:
		c.add("header", hdrHistoryIntent, "record %d is being written, %d are complete", intent, again)
		return
	case base > tail:
		c.add("header", hdrHistoryBase, "records start after %d, %d were written", base, tail)
		return
	}
	for n := max(base, intent-min(intent, size)); n < tail && !c.full(); n++ {
		slot := n & (size - 1)
		var rec historyMem
		copyWords(words(&rec), words(&v.history[slot]))
		loadFence()
		if atomic.LoadUint64(&h.historyIntent) > n+size {
			continue // overwritten meanwhile
		}
		object, at := fmt.Sprintf("history record %d", n+1), v.table[secHistory].offset+slot*historySize
		if rec.position != n+1 {
			c.add(object, at, "has number %d", rec.position)
		}
		if int(rec.index) >= len(v.entries) {
			c.add(object, at+hisIndex, "is of counter %d of %d", rec.index, len(v.entries))
		}
		if begun := atomic.LoadUint64(&h.cycleBegun); rec.cycle > begun {
			c.add(object, at+hisCycle, "is of cycle %d, only %d were begun", rec.cycle, begun)
		}
	}
}
