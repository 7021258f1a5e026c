package shm

import "sync/atomic"

// Capacity is how many counters of each class the mirror holds. It may be more
// than what was asked for: a mirror that was there never shrinks. Indices of
// latency counters begin at counters.
func (w *Writer) Capacity() (counters, latency int) {
	return int(w.v.counters()), len(w.v.records)
}

// Used is how many live counters of each class there are.
func (w *Writer) Used() (counters, latency int) {
	return int(atomic.LoadUint32(&w.v.hdr.countersUsed)), int(atomic.LoadUint32(&w.v.hdr.recordsUsed))
}
