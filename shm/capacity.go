package shm

// Capacity is how many counters of each class the mirror holds. It may be more
// than what was asked for: a mirror that was there never shrinks. Indices of
// latency counters begin at counters.
func (w *Writer) Capacity() (counters, latency int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int(w.v.counters()), len(w.v.records)
}

// Used is how many live counters of each class there are.
func (w *Writer) Used() (counters, latency int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int(w.v.hdr.countersUsed), int(w.v.hdr.recordsUsed)
}
