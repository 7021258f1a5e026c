package shm

import "sync/atomic"

// capacity returns how many counters of each class fit the declared segments.
func (v *view) capacity() (counters, latency int) {
	for n := range v.declared() {
		switch atomic.LoadUint32(&v.hdr.table[n].kind) {
		case kindBlocks:
			counters += SegmentLen
		case kindRecords:
			latency += SegmentLen
		}
	}
	return counters, latency
}

// Used returns the number of live counters of each class.
func (w *Writer) Used() (counters, latency int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.guard(func() error { // works after Close too
		counters, latency = int(w.v.hdr.countersUsed), int(w.v.hdr.recordsUsed)
		return nil
	})
	return counters, latency
}
