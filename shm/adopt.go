package shm

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// adopt makes the writer's tables from the catalogue, and finishes what a writer
// that was killed had begun. Each repair is a publish like any other, so adopt
// may be killed as well.
func (w *Writer) adopt(now int64) {
	v := w.v
	n := v.counters()
	w.names = make(map[string]uint32)
	w.live = make([]uint64, len(v.blocks))
	w.liveRecords = make([]bool, len(v.records))
	w.free = [2]freeList{{end: n}, {next: n, end: n + uint32(len(v.records))}}
	w.cycle = max(v.hdr.cycleBegun, v.hdr.cycleDone)

	var used [2]uint32
	for i := range uint32(len(v.entries)) {
		e := &v.entries[i]
		state, generation := uint32(e.identity>>32), uint32(e.identity)
		if state == entUnused {
			continue
		}
		f := &w.free[w.class(i)]
		for ; f.next < i; f.next++ { // a slot that was passed over; not left by this code
			f.cooling = append(f.cooling, cooling{index: f.next})
		}
		f.next = i + 1
		w.raiseHigh(i)
		switch state {
		case entLive:
			w.names[getString(e.name[:])] = i
			w.setLive(i, true)
			used[w.class(i)]++
		case entBuilding:
			// Added halfway. Nobody has seen it; its generation is spent.
			w.step("adopt-building")
			atomic.StoreInt64(&e.freedAt, now)
			publish64(&e.identity, identity(entRetired, generation))
			fallthrough
		default:
			w.release(i, min(e.freedAt, now))
		}
	}
	for c := range w.free {
		slices.SortStableFunc(w.free[c].cooling, func(a, b cooling) int {
			return cmp.Compare(a.freedAt, b.freedAt)
		})
	}
	atomic.StoreUint32(&v.hdr.countersUsed, used[0])
	atomic.StoreUint32(&v.hdr.recordsUsed, used[1])
	w.finishFrees()
}

// finishFrees publishes what a killed Add or Remove did not: rows and records
// that belong to no live entry become zero, under a raised epoch.
func (w *Writer) finishFrees() {
	v := w.v
	for i := range v.blocks {
		b := &v.blocks[i]
		if have := b.copies[b.seq&1].live; have != w.live[i] {
			next := nextSeq(b.seq, true)
			announce64(&b.intent, next)
			w.step("adopt-block-announced")
			from, to := &b.copies[b.seq&1], &b.copies[next&1]
			copyBlock(&to.values, &from.values)
			to.seal(from.cycle, w.live[i], epochOf(next))
			publish64(&b.seq, next)
			w.step("adopt-block-done")
		}
	}
	for i := range v.records {
		r, e := &v.records[i], &v.entries[v.counters()+uint32(i)]
		if w.liveRecords[i] || e.identity == 0 {
			continue
		}
		// Only its own Remove raises a record's epoch: as long as it is that of
		// the Add, the Remove was cut short, or never began.
		if r.slots[r.seq&1] != (Value{}) || e.born == epochOf(r.seq) {
			w.putRecord(r, nextSeq(r.seq, true), Value{}, w.cycle)
			w.step("adopt-record-done")
		}
	}
}
