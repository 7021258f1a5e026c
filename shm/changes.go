package shm

import (
	"sync/atomic"
	"time"
)

// swapping is the bit of catalogueChanges that is set while an Exchange swaps counters.
const swapping = 1 << swapsShift

// looks are the looks of one listing. An Exchange removes all its old counters before it shows the new ones.
type looks struct {
	word uint64 // catalogueChanges before the last look
	n    int
}

// again tells whether to look at the entries: at first, and again if a swap was going on beside the last look, maxTries
// times at most. It waits for the end of a swap, in pauses that count as tries, 0.4 s in all: a writer may wait for a CPU.
func (l *looks) again(v *view) bool {
	word := &v.hdr.catalogueChanges
	now := atomic.LoadUint64(word) // barrier changes-acquire
	if l.n > maxTries || l.n > 0 && l.word&swapping == 0 && (now^l.word)/swapping == 0 {
		return false
	}
	for l.n++; now&swapping != 0 && l.n <= maxTries; l.n++ {
		time.Sleep(time.Duration(l.n) * 200 * time.Microsecond)
		now = atomic.LoadUint64(word) // barrier changes-acquire
	}
	l.word = now
	return true
}

// changed tells readers to look at the catalogue again (barrier changes-release).
func (w *Writer) changed() { atomic.AddUint64(&w.v.hdr.catalogueChanges, 1) }

// setSwapping tells readers that counters of an Exchange are missing from now on, or no longer (barrier changes-release).
func (w *Writer) setSwapping(on bool) {
	if p := &w.v.hdr.catalogueChanges; *p&swapping != 0 != on {
		atomic.AddUint64(p, swapping)
	}
}
