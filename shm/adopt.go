package shm

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// adopt builds the writer's tables from the catalogue, and finishes what a killed writer had begun. Each repair is an
// ordinary publish, so a kill in adopt leaves nothing that the next adopt could not repair.
func (w *Writer) adopt(now int64) error {
	v := w.v
	list, err := v.segments()
	if err != nil {
		return err
	}
	w.names = make(map[string]uint32)
	w.live = make([]uint64, len(list)*segmentBlocks)
	w.free = [2]freeList{}
	w.cycle = max(v.hdr.cycleBegun, v.hdr.cycleDone)

	// Set the entries of an Exchange aside: whether it goes on or is dropped depends on all of them.
	var used [2]uint32
	var exchanged []uint32
	for n, s := range list {
		w.freeSegment(uint32(n), s.kind)
		for k := range v.high(n) {
			i := uint32(n)*SegmentLen + k
			p := place{s, k}
			if e := p.entry(); e.identity>>32 == entBuilding && e.freedAt < 0 {
				exchanged = append(exchanged, i)
			} else if w.adoptEntry(i, p, now) {
				used[classOf(s.kind == kindRecords)]++
			}
		}
	}
	atomic.StoreUint32(&v.hdr.countersUsed, used[classCounters])
	atomic.StoreUint32(&v.hdr.recordsUsed, used[classRecords])
	w.finishExchange(exchanged, now)
	w.setSwapping(false) // the last writer may have been killed between its last LIVE and this

	for class := range w.free {
		slices.SortStableFunc(w.free[class].cooling, func(a, b cooling) int {
			return cmp.Compare(a.freedAt, b.freedAt)
		})
	}
	for n, s := range list {
		if s.kind == kindRecords {
			w.finishRecords(n, s)
		} else {
			w.finishBlocks(n, s)
		}
	}
	return nil
}

// adoptEntry adds the slot of index i to the tables, and reports whether its counter is live.
func (w *Writer) adoptEntry(i uint32, p place, now int64) bool {
	e := p.entry()
	w.spend(uint32(e.identity))
	w.putLive(e, LiveSlot{}) // the slots of the last process may serve other counters by now

	switch state, generation := uint32(e.identity>>32), uint32(e.identity); state {
	case entUnused: // an Add was killed before it wrote anything here
		f := w.freeOf(i)
		f.cooling = append(f.cooling, cooling{index: i, freedAt: neverUsed})
	case entLive:
		w.names[getString(e.name[:])] = i
		w.setLive(i, true)
		return true
	case entBuilding: // an Add was killed. No reader has seen the counter, but its generation is spent.
		w.step("adopt-building")
		atomic.StoreInt64(&e.freedAt, now)
		publish64(&e.identity, identity(entRetired, generation))
		fallthrough
	default:
		w.release(i, e, min(e.freedAt, now))
	}
	return false
}

// finishBlocks publishes what a killed Add or Remove left out: rows without a live entry become zero, under a raised
// epoch. It also publishes each block whose parity differs from its segment's, because the last writer was killed
// between two publishes or in a cycle.
func (w *Writer) finishBlocks(n int, s *segment) {
	parity, _ := w.parity(n)
	for i := range blocksUsed(w.v.high(n)) {
		b := block{s.blocks, i}
		live := w.live[n*segmentBlocks+int(i)]
		seq := b.seq()
		freed := b.copy(*seq).live != live
		if freed {
			w.republish(b, -1, Value{}, 0, live, true)
			w.step("adopt-block-done")
		}
		if *seq&1 != parity {
			w.republish(b, -1, Value{}, 0, live, false)
			w.step("adopt-parity-done")
		}
	}
}

// finishRecords publishes what a killed Remove of a latency counter left out.
func (w *Writer) finishRecords(n int, s *segment) {
	for k := range w.v.high(n) {
		r := &s.records.records[k]
		e := &s.entries[k]
		if w.isLive(uint32(n)*SegmentLen+k) || e.identity == 0 {
			continue
		}
		// Only a Remove raises a record's epoch. If it still is the epoch of the Add, the Remove was killed before its
		// publish, or it was the Add that was killed.
		if r.slots[r.seq&1] != (Value{}) || e.born == epochOf(r.seq) {
			w.putRecord(r, nextSeq(r.seq, true), Value{}, w.cycle)
			w.step("adopt-record-done")
		}
	}
}
