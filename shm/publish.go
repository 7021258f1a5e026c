package shm

import (
	"math/bits"
	"sync/atomic"
)

// BeginCycle starts a poll cycle and returns its number. Control methods wait until EndCycle, which the same
// goroutine must call. On a closed writer BeginCycle returns 0, and publishes until EndCycle are dropped.
func (w *Writer) BeginCycle() (cycle uint64) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return 0
	}
	w.inCycle = true
	w.cycle++
	publish64(&w.v.hdr.cycleBegun, w.cycle) // barrier begun-release (idle: the publishes that follow have fences)

	if w.cycle&(restamp-1) == 0 {
		w.restampRecords()
	}
	return w.cycle
}

// EndCycle completes the cycle at time now, which is also a heartbeat, and wakes sleepers. The first cycle moves
// the state from Boot to Run.
func (w *Writer) EndCycle(now int64) {
	if !w.inCycle {
		w.outside("EndCycle")
		return
	}
	h := w.v.hdr
	atomic.StoreInt64(&h.cycleDoneAt, now) // by sync/atomic: waker.cycle relies on the order of this store
	publish64(&h.cycleDone, w.cycle)       // barrier cycle-release
	w.beat(now)
	if w.state == Boot {
		w.state = Run
		atomic.StoreUint32(&h.state, uint32(Run))
	}

	w.waker.cycle(now)
	w.inCycle = false
	w.mu.Unlock()
}

// AbandonCycle ends a cycle in which the caller recovered a fault on the file (Guard). Readers may see the values
// that the cycle published, but never a completed cycle. The goroutine of BeginCycle calls it. Outside of a cycle
// it does nothing and returns false.
func (w *Writer) AbandonCycle() bool {
	if !w.inCycle {
		return false
	}
	w.inCycle = false
	w.faulted = true
	w.mu.Unlock()
	return true
}

// outside handles a call that belongs inside a cycle and came outside: a mistake of the program, except after Close.
func (w *Writer) outside(call string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		panic("shm: " + call + " outside BeginCycle and EndCycle")
	}
}

// PublishBlock publishes the values of a block's 64 counters as one unit. It ignores rows that belong to no
// counter, and allocates nothing.
func (w *Writer) PublishBlock(block int, values *Block) {
	if !w.inCycle {
		w.outside("PublishBlock")
		return
	}
	if uint(block) >= uint(len(w.live)) || w.live[block] == 0 {
		return // no counter is in it: readers do not look there, and it stays as it is
	}
	s := (*w.v.list.Load())[block/segmentBlocks]
	live := w.live[block]
	if s.kind != kindBlocks {
		return
	}

	b := blockOf(s, block)
	seq := b.seq()
	next := nextSeq(*seq, false)
	c := b.copy(next)
	if live == ^uint64(0) && w.hook == nil && publishSame(seq, b.intent(), c, values, next, w.cycle) {
		return
	}

	w.step("publish-block-begin")
	announce64(b.intent(), next) // barrier publish-fence
	w.step("publish-block-announced")
	copyBlock(&c.values, values)
	w.step("publish-block-half-filled")
	c.seal(w.cycle, live, epochOf(next))
	w.step("publish-block-filled")
	publish64(seq, next) // barrier publish-release
	w.step("publish-block-done")
}

// republish publishes b as it stands, except for row i, whose counter is added or removed: it becomes v, of cycle.
// i < 0 changes no row. live becomes the rows in use, and freed raises the epoch.
func (w *Writer) republish(b block, i int, v Value, cycle, live uint64, freed bool) {
	seq := b.seq()
	next := nextSeq(*seq, freed)
	announce64(b.intent(), next) // barrier publish-fence
	w.step("republish-announced")

	from, to := b.copy(*seq), b.copy(next)
	copyBlock(&to.values, &from.values)
	if i >= 0 {
		storeValue(&to.values[i], v)
	}
	w.step("republish-half-filled")
	to.seal(max(from.cycle, cycle), live, epochOf(next))
	publish64(seq, next) // barrier publish-release
	w.step("republish-done")
}

// parity returns the parity of a segment's blocks, that of the lowest block in use: a snapshot copies neighbouring
// copies of one parity in one piece. ok is false if no block is in use.
func (w *Writer) parity(segment int) (parity uint64, ok bool) {
	s := (*w.v.list.Load())[segment]
	for b, live := range w.live[segment*segmentBlocks:][:segmentBlocks] {
		if live != 0 {
			return *blockOf(s, b).seq() & 1, true
		}
	}
	return 0, false
}

func blockOf(s *segment, n int) block { return block{s.blocks, uint32(n) % segmentBlocks} }

// seal completes a copy whose values are filled in: it clears the rows that are not live, and writes the header.
func (c *copyMem) seal(cycle, live, epoch uint64) {
	used := bits.Len64(live)
	if live != ^uint64(0) {
		clearRows(c.values[used:])
		for dead := ^live & (1<<used - 1); dead != 0; dead &= dead - 1 {
			storeValue(&c.values[bits.TrailingZeros64(dead)], Value{})
		}
	}

	oldest, newest := c.bounds(used)
	store64(&c.cycle, cycle)
	storeTime(&c.oldest, oldest)
	storeTime(&c.newest, newest)
	store64(&c.live, live)
	store64(&c.epoch, epoch)
}

// bounds returns the smallest and the largest sample time of the first n rows. Rows that were never sampled, whose
// time is 0, do not count.
func (c *copyMem) bounds(n int) (oldest, newest int64) {
	if n == 0 {
		return 0, 0
	}

	// Most often all times are equal. To find that out takes a third of the time of the search below.
	first, differ := c.values[0].SampledAt, int64(0)
	rows := c.values[:n]
	for ; len(rows) >= 4; rows = rows[4:] {
		differ |= (rows[0].SampledAt ^ first) | (rows[1].SampledAt ^ first)
		differ |= (rows[2].SampledAt ^ first) | (rows[3].SampledAt ^ first)
	}
	for i := range rows {
		differ |= rows[i].SampledAt ^ first
	}
	if differ == 0 {
		return first, first
	}

	// Less one, 0 becomes the largest unsigned number, so that the minimum skips it without a branch. Each minimum
	// waits for the one before it, so two chains run side by side.
	low, low2, high, high2 := ^uint64(0), ^uint64(0), int64(0), int64(0)
	for rows = c.values[:n]; len(rows) >= 2; rows = rows[2:] {
		at, at2 := rows[0].SampledAt, rows[1].SampledAt
		low, high = min(low, uint64(at)-1), max(high, at)
		low2, high2 = min(low2, uint64(at2)-1), max(high2, at2)
	}
	for i := range rows {
		low, high = min(low, uint64(rows[i].SampledAt)-1), max(high, rows[i].SampledAt)
	}
	return int64(min(low, low2) + 1), max(high, high2)
}

// PublishRecord publishes the value of the latency counter of that index (Handle.Index). It ignores an index that
// belongs to no counter, and allocates nothing.
func (w *Writer) PublishRecord(index uint32, v Value) {
	if !w.inCycle {
		w.outside("PublishRecord")
		return
	}
	n := index / BlockLen
	if int(n) >= len(w.live) || w.live[n]>>(index%BlockLen)&1 == 0 {
		return
	}
	s := (*w.v.list.Load())[index/SegmentLen]
	if s.kind != kindRecords {
		return
	}

	r := &s.records.records[index%SegmentLen]
	w.putRecord(r, nextSeq(r.seq, false), v, w.cycle)
}

// putRecord publishes v, of cycle, as the record's value, under sequence word next.
func (w *Writer) putRecord(r *recordMem, next uint64, v Value, cycle uint64) {
	w.step("publish-record-begin")
	storeFence() // barrier publish-fence
	storeValue(&r.slots[next&1], v)
	w.step("publish-record-half-filled")
	store32(&r.cycles[next&1], uint32(cycle))
	w.step("publish-record-filled")
	publish64(&r.seq, next) // barrier publish-release
	w.step("publish-record-done")
}

// restamp is after how many cycles every record is published again. A record keeps only the low 32 bits of its
// cycle: readers take them for the latest cycle with these bits, which holds for 2^32 cycles.
const restamp = 1 << 30

// restampRecords publishes every live record again, with its value, under the current cycle.
func (w *Writer) restampRecords() {
	for n, s := range *w.v.list.Load() {
		if s.kind != kindRecords {
			continue
		}
		for i := range s.records.records {
			r := &s.records.records[i]
			if w.isLive(uint32(n*SegmentLen + i)) {
				w.putRecord(r, nextSeq(r.seq, false), r.slots[r.seq&1], w.cycle)
			}
		}
	}
}

// AppendHistory writes a sample of h into the ring. In a full ring it overwrites the oldest record. Readers learn
// exactly how many records they missed.
func (w *Writer) AppendHistory(h Handle, v Value) {
	if !w.inCycle {
		w.outside("AppendHistory")
		return
	}
	size := uint64(len(w.v.history))
	if size == 0 {
		return
	}

	hdr := w.v.hdr
	n := hdr.historyTail + 1
	w.step("history-begin")
	announce64(&hdr.historyIntent, n) // barrier history-fence
	w.step("history-announced")
	rec := historyMem{
		position:   n,
		index:      h.Index,
		generation: h.Generation,
		time:       v.SampledAt,
		packets:    v.Packets,
		bytes:      v.Bytes,
		cycle:      w.cycle,
	}
	dst := &w.v.history[(n-1)&(size-1)]
	copyWords(wordsAt(dst), wordsAt(&rec))
	w.step("history-filled")
	publish64(&hdr.historyTail, n) // barrier history-release
	w.step("history-done")
}

// Heartbeat tells readers that the writer lives. A writer calls it whose cycles are further apart than
// Options.HeartbeatPeriod.
func (w *Writer) Heartbeat(now int64) {
	_ = w.control(func() error {
		w.beat(now)
		return nil
	})
}

func (w *Writer) beat(now int64) { storeTime(&w.v.hdr.heartbeat, now) }
