package shm

import (
	"fmt"
	"sync/atomic"
	"time"
)

// freeList hands out the slots of one class: those that have cooled down in the
// order in which they were freed, then those that were never used.
type freeList struct {
	cooling []cooling
	next    uint32 // first that was never used
	end     uint32
}

type cooling struct {
	index   uint32
	freedAt int64
}

func (w *Writer) class(i uint32) int {
	if i >= w.v.counters() {
		return 1
	}
	return 0
}

// take answers a slot that may be used now.
func (w *Writer) take(latency bool, now int64) (uint32, error) {
	class, what := 0, "counters"
	if latency {
		class, what = 1, "latency counters"
	}
	f := &w.free[class]
	if len(f.cooling) > 0 && now-f.cooling[0].freedAt >= int64(w.coolDown) {
		i := f.cooling[0].index
		f.cooling = f.cooling[1:]
		return i, nil
	}
	if f.next < f.end {
		f.next++
		return f.next - 1, nil
	}
	atomic.AddUint64(&w.v.hdr.refused, 1)
	if n := len(f.cooling); n > 0 {
		wait := time.Duration(f.cooling[0].freedAt + int64(w.coolDown) - now)
		return 0, fmt.Errorf("all %d %s are in use, but for %d that cool down: the first is free in %v: %w",
			w.capacity(class), what, n, wait.Round(time.Millisecond), ErrFull)
	}
	return 0, fmt.Errorf("all %d %s are in use: start the writer with a larger capacity: %w", w.capacity(class), what, ErrFull)
}

func (w *Writer) capacity(class int) int {
	if class == 1 {
		return len(w.v.records)
	}
	return int(w.v.counters())
}

// giveBack returns a slot that take answered and nobody used.
func (w *Writer) giveBack(i uint32) {
	f := &w.free[w.class(i)]
	if i+1 == f.next && w.v.entries[i].identity == 0 {
		f.next--
		return
	}
	f.cooling = append([]cooling{{index: i, freedAt: w.v.entries[i].freedAt}}, f.cooling...)
}

// release puts a retired slot to cool down. One whose generations are used up
// is never used again.
func (w *Writer) release(i uint32, now int64) {
	if uint32(w.v.entries[i].identity) == 1<<32-1 {
		return
	}
	f := &w.free[w.class(i)]
	f.cooling = append(f.cooling, cooling{index: i, freedAt: now})
}

func (w *Writer) setLive(i uint32, live bool) {
	if n := w.v.counters(); i >= n {
		w.liveRecords[i-n] = live
		return
	}
	if bit := uint64(1) << (i % BlockLen); live {
		w.live[i/BlockLen] |= bit
	} else {
		w.live[i/BlockLen] &^= bit
	}
}

// raiseHigh lets readers look at index i, before anything is published there.
func (w *Writer) raiseHigh(i uint32) {
	h := w.v.hdr
	if n := w.v.counters(); i >= n {
		if i-n >= h.recordsHigh {
			atomic.StoreUint32(&h.recordsHigh, i-n+1)
		}
	} else if i/BlockLen >= h.blocksHigh {
		atomic.StoreUint32(&h.blocksHigh, i/BlockLen+1)
	}
}

// countUsed keeps the fill levels in the header.
func (w *Writer) countUsed(i uint32, by int) {
	p := &w.v.hdr.countersUsed
	if w.class(i) == 1 {
		p = &w.v.hdr.recordsUsed
	}
	atomic.StoreUint32(p, uint32(int(*p)+by))
}

// changed tells readers to look at the catalogue again.
func (w *Writer) changed() { atomic.AddUint64(&w.v.hdr.catalogueChanges, 1) }
