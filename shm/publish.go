package shm

import (
	"math/bits"
	"sync/atomic"
)

// BeginCycle starts a poll cycle and returns its number. Control methods wait until the same goroutine calls
// EndCycle. On a closed writer BeginCycle returns 0, and the calls until EndCycle do nothing.
func (w *Writer) BeginCycle() (cycle uint64) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return 0
	}
	w.inCycle = true
	w.cycle++
	publish64(&w.v.hdr.cycleBegun, w.cycle) // barrier begun-release (idle: each publish of the cycle begins with a store fence)

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
	atomic.StoreInt64(&h.cycleDoneAt, now) // must be sync/atomic, as the full fence that waker.cycle needs
	publish64(&h.cycleDone, w.cycle)       // barrier cycle-release: after all values of the cycle
	w.beat(now)
	if w.state == Boot {
		w.state = Run
		atomic.StoreUint32(&h.state, uint32(Run))
	}

	w.waker.cycle(now)
	w.inCycle = false
	w.mu.Unlock()
}

// AbandonCycle ends a cycle in which Guard caught a fault on the file. Readers may see what the cycle published, but
// never a completed cycle. Only the goroutine that called BeginCycle may call it. Outside of a cycle it does nothing
// and returns false.
func (w *Writer) AbandonCycle() bool {
	if !w.inCycle {
		return false
	}
	w.inCycle = false
	w.faulted = true
	w.mu.Unlock()
	return true
}

// outside panics, because the caller called outside of a cycle what belongs inside. After Close it does nothing.
func (w *Writer) outside(call string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		panic("shm: " + call + " outside BeginCycle and EndCycle")
	}
}

// PublishBlock publishes the values of a block's 64 counters as one unit. It ignores rows without a counter, and
// allocates nothing.
//
// A block has two copies, and the low bit of its sequence word says which one is current. A publish fills the other
// copy and then stores the next sequence word. A reader loads the sequence word, reads the current copy, and loads
// the sequence word again; if it has moved, the reader tries again. So each copy is filled at every second publish.
//
// Suppose that a reader under word n meets a value of publish n + 2, which overwrites the copy of n. The writer
// stored n + 1 before the store fence of publish n + 2, and the value after it. The reader has loaded the value
// before its load fence, so its second look, after the fence, finds n + 1 or later, and it drops the copy. On arm64
// this needs both fences. In particular the store-release of n + 1 is not enough, because later stores may overtake
// it. amd64 keeps stores and loads in order by itself.
//
// The values of publish n come before the store-release of n, so a reader that loads n with acquire sees all of them,
// and nothing older.
func (w *Writer) PublishBlock(block int, values *Block) {
	if !w.inCycle {
		w.outside("PublishBlock")
		return
	}
	if uint(block) >= uint(len(w.live)) || w.live[block] == 0 {
		return // it has no counter, so no reader looks at it
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
	announce64(b.intent(), next) // barrier publish-fence: the last sequence word and intent before the stores below
	w.step("publish-block-announced")
	copyBlock(&c.values, values)
	w.step("publish-block-half-filled")
	c.seal(w.cycle, live, epochOf(next))
	w.step("publish-block-filled")
	publish64(seq, next) // barrier publish-release: the copy before its sequence word
	w.step("publish-block-done")
}

// republish publishes the current values of b again, with v, of cycle, in row i, whose counter is being added or
// removed. i < 0 changes no row. live says which rows are in use from now on, and freed raises the epoch.
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

// parity returns the parity that all blocks of a segment should have, which is that of the lowest block in use. A
// snapshot copies adjacent copies of one parity in one piece. ok is false if no block is in use.
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

// seal completes a copy after its values: it clears the rows that are not live, and writes the header of the copy.
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

// bounds returns the smallest and the largest sample time of the first n rows. It skips rows that were never sampled,
// whose time is 0.
func (c *copyMem) bounds(n int) (oldest, newest int64) {
	if n == 0 {
		return 0, 0
	}

	// Usually all times are equal. Checking that first takes a third of the time of the search below.
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

	// Subtracting one makes 0 the largest unsigned number, so the minimum skips it without a branch. Each minimum
	// depends on the one before, so the loop runs two chains side by side.
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

// PublishRecord publishes the value of the latency counter with that Handle.Index. It ignores an index without a
// counter, and allocates nothing.
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

// putRecord publishes v, of cycle, as the record's value, under sequence word next. The two slots of a record work as
// the two copies of a block do: see PublishBlock.
func (w *Writer) putRecord(r *recordMem, next uint64, v Value, cycle uint64) {
	w.step("publish-record-begin")
	storeFence() // barrier publish-fence: the last sequence word before the stores below
	storeValue(&r.slots[next&1], v)
	w.step("publish-record-half-filled")
	store32(&r.cycles[next&1], uint32(cycle))
	w.step("publish-record-filled")
	publish64(&r.seq, next) // barrier publish-release
	w.step("publish-record-done")
}

// restamp is the number of cycles after which every record is published again. A record has room only for the low 32
// bits of its cycle. Readers assume the latest cycle with these bits, which is wrong after 2^32 cycles.
const restamp = 1 << 30

// restampRecords publishes the value of every live record again, under the current cycle.
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

// AppendHistory writes a sample of h into the ring, over the oldest record if the ring is full. Readers learn exactly
// how many records they missed.
//
// The intent tells readers which record is being overwritten. It must be visible before the first store to the record,
// which takes a fence on arm64. A reader copies the record, then fences, then loads the intent: if it has copied any
// word of the new record, it sees the intent, and drops the copy.
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

// Heartbeat tells readers that the writer lives. EndCycle does so too, so only a writer with fewer than one cycle per
// Options.HeartbeatPeriod must call it.
func (w *Writer) Heartbeat(now int64) {
	_ = w.control(func() error {
		w.beat(now)
		return nil
	})
}

func (w *Writer) beat(now int64) { storeTime(&w.v.hdr.heartbeat, now) }
