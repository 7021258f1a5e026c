package shm

import "sync/atomic"

// capacity is how many counters of each class the declared segments hold.
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

// Used is how many live counters of each class there are.
func (w *Writer) Used() (counters, latency int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.guard(func() error { // after Close too: the last numbers
		counters, latency = int(w.v.hdr.countersUsed), int(w.v.hdr.recordsUsed)
		return nil
	})
	return counters, latency
}
