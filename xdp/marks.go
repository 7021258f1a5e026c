package xdp

import "sync/atomic"

// Marked is the number of adjacent counters that have one mark.
const Marked = marked

// Marks fills dst with the marks of the first len(dst) times Marked counters: dst[i] differs from the mark
// of an earlier call if one of its counters was updated between, less than 2^32 times. A counter that is read afterwards has every update that dst has. It allocates nothing and makes no
// system call. ErrNotFound: there are fewer counters. ErrClosed.
func (rs *RuleSet) Marks(dst []uint32) error {
	rs.reads.RLock()
	defer rs.reads.RUnlock()
	if rs.closed {
		return ErrClosed
	}
	return rs.values.readMarks(dst)
}

// readMarks sums the marks of each CPU. A sum changes with each of them: they only rise.
func (v *values) readMarks(dst []uint32) error {
	if len(dst) > (len(v.base)+marked-1)/marked {
		return ErrNotFound
	}
	clear(dst)
	four := len(dst) &^ 15 // marks that are added for four CPUs at once
	for at, cpu := v.marks, 0; at < len(v.words); at, cpu = at+v.block, cpu+1 {
		marks, n := marksOf(v.words[at:][:(len(dst)+1)/2])[:len(dst)], 0
		if whole := len(v.words) / v.block &^ 3; canSum && four > 0 && cpu < whole {
			if n = four; cpu%4 == 0 {
				addMarks(dst[:n], &marks[0], uintptr(v.block)*8)
			}
		}
		for ; n < len(dst); n++ {
			dst[n] += atomic.LoadUint32(&marks[n]) // barrier mark-acquire
		}
	}
	return nil
}
