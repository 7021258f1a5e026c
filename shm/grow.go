package shm

import "sync/atomic"

// carry copies everything that old holds into v, which is fresh and at least as
// large in every capacity. Indices of latency counters move up with the number
// of block counters, in the catalogue and in the history.
func (v *view) carry(old *view) {
	h, o := v.hdr, old.hdr
	h.generation, h.takeovers = o.generation, o.takeovers
	h.cycleBegun, h.cycleDone, h.cycleDoneAt = o.cycleBegun, o.cycleDone, o.cycleDoneAt
	h.catalogueChanges, h.refused = o.catalogueChanges, o.refused
	h.blocksHigh, h.recordsHigh = o.blocksHigh, o.recordsHigh
	h.deviceGeneration, h.deviceLength = o.deviceGeneration, o.deviceLength

	from, to := old.counters(), v.counters()
	copy(v.entries, old.entries[:from])
	copy(v.entries[to:], old.entries[from:])
	copy(v.blocks, old.blocks)
	copy(v.records, old.records)

	size, oldSize := uint64(len(v.history)), uint64(len(old.history))
	tail := o.historyTail
	h.historyIntent, h.historyTail = tail, tail
	// What the old ring may have been overwriting when its writer was killed is
	// the record after its tail: it stands in the place of the oldest, which
	// readers of the larger ring must not ask for.
	first := max(o.historyBase, tail-min(tail, oldSize))
	if o.historyIntent > tail && tail >= oldSize && oldSize > 0 {
		first = max(first, tail-oldSize+1)
	}
	h.historyBase = first
	for n := first; n < tail; n++ {
		rec := old.history[n&(oldSize-1)]
		if rec.index >= from {
			rec.index += to - from
		}
		v.history[n&(size-1)] = rec
	}
}

// supersede tells the readers of v that the file of next takes its name.
func (v *view) supersede(next *view) {
	atomic.StoreUint64(&v.hdr.successor, atomic.LoadUint64(&next.hdr.generation))
	atomic.StoreInt64(&v.hdr.supersededAt, Now())
	atomic.StoreUint32(&v.hdr.state, uint32(Superseded))
}
