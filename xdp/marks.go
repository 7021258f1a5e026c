package xdp

import "sync/atomic"

// Marked is the number of adjacent counters that have one mark.
const Marked = marked

// Marks fills dst with the marks of the first len(dst)*Marked counters. A mark differs from that of an earlier call if one of its
// counters was updated in between, less than 2^32 times. A counter that is read behind Marks has every update that dst shows.
//
// Marks allocates nothing and makes no system call. The error is ErrNotFound, if there are fewer counters, or ErrClosed.
func (dp *Datapath) Marks(dst []uint32) error {
	dp.reads.RLock()
	defer dp.reads.RUnlock()
	if dp.closed {
		return ErrClosed
	}
	return dp.values.readMarks(dst)
}

// readMarks sums the marks of all CPUs. Marks only rise, so a sum changes with each of them.
func (v *values) readMarks(dst []uint32) error {
	if len(dst) > (len(v.base)+marked-1)/marked {
		return ErrNotFound
	}
	clear(dst)
	four := len(dst) &^ 15               // marks that are added for four CPUs at once
	quads := len(v.words) / v.block &^ 3 // CPUs in groups of four
	for at, cpu := v.marks, 0; at < len(v.words); at, cpu = at+v.block, cpu+1 {
		marks := marksOf(v.words[at:][:(len(dst)+1)/2])[:len(dst)]
		n := 0
		if canSum && four > 0 && cpu < quads {
			n = four
			if cpu%4 == 0 { // for this CPU and the next three
				addMarks(dst[:n], &marks[0], uintptr(v.block)*8)
			}
		}
		for ; n < len(dst); n++ {
			dst[n] += atomic.LoadUint32(&marks[n]) // barrier mark-acquire
		}
	}
	return nil
}
