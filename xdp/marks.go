package xdp

import "sync/atomic"

// Marked is the number of adjacent counters that share a mark.
const Marked = marked

// Marks fills dst with the marks of the first len(dst)*Marked counters. A mark changes with every update of its counters, and
// repeats after 2^32 updates. Compare marks of two calls to find out which counters need to be read. Read them after calling
// Marks: then their values include every update that dst shows.
//
// Marks allocates nothing and makes no system call. The error is ErrNotFound if there are fewer counters, or ErrClosed.
func (dp *Datapath) Marks(dst []uint32) error {
	dp.reads.RLock()
	defer dp.reads.RUnlock()
	if dp.closed {
		return ErrClosed
	}
	return dp.values.readMarks(dst)
}

// readMarks sums the marks of all CPUs. Each mark only rises, so every update changes the sum.
func (v *values) readMarks(dst []uint32) error {
	if len(dst) > (len(v.base)+marked-1)/marked {
		return ErrNotFound
	}
	clear(dst)
	four := len(dst) &^ 15               // marks that addMarks can sum, for four CPUs at once
	quads := len(v.words) / v.block &^ 3 // CPUs in whole groups of four
	for at, cpu := v.marks, 0; at < len(v.words); at, cpu = at+v.block, cpu+1 {
		marks := marksOf(v.words[at:][:(len(dst)+1)/2])[:len(dst)]
		n := 0
		if canSum && four > 0 && cpu < quads {
			n = four
			if cpu%4 == 0 { // once for this CPU and the next three
				addMarks(dst[:n], &marks[0], uintptr(v.block)*8)
			}
		}
		for ; n < len(dst); n++ {
			dst[n] += atomic.LoadUint32(&marks[n]) // barrier mark-acquire
		}
	}
	return nil
}
