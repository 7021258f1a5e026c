package shm

import (
	"sync/atomic"
	"time"
)

// The word catalogue_changes of the header tells readers when to scan the catalogue again. Its low bits count
// the changes of entries, its high bits count the beginnings and ends of swaps: see swapsShift.

// swapping is the lowest bit of the count of swaps. It is set while an Exchange swaps counters.
const swapping = 1 << swapsShift

// changed tells readers to look at the catalogue again (barrier changes-release).
func (w *Writer) changed() { atomic.AddUint64(&w.v.hdr.catalogueChanges, 1) }

// setSwapping tells readers that an Exchange begins or ends to swap counters. In between, readers may miss counters
// that continue, and must scan again (barrier changes-release).
func (w *Writer) setSwapping(on bool) {
	word := &w.v.hdr.catalogueChanges
	if *word&swapping != 0 != on {
		atomic.AddUint64(word, swapping)
	}
}

// scans decides how often one listing scans the catalogue. An Exchange removes all its old counters before it
// shows the new ones, so a concurrent scan may miss counters that continue.
type scans struct {
	changes uint64 // catalogueChanges before the latest scan
	tries   int
}

// next reports whether to scan the entries: once, and again if an Exchange was swapping counters during the last
// scan. During a swap next sleeps, because the writer may be waiting for a CPU. Each scan and each sleep is a try. There
// are at most maxTries + 1 of them, with 0.4 s of sleep in all, so that a writer killed in a swap stops no reader.
func (s *scans) next(v *view) bool {
	word := &v.hdr.catalogueChanges
	now := atomic.LoadUint64(word) // barrier changes-acquire

	undisturbed := s.changes&swapping == 0 && now>>swapsShift == s.changes>>swapsShift
	if s.exhausted() || s.tries > 0 && undisturbed {
		return false
	}

	s.tries++
	for now&swapping != 0 && s.tries <= maxTries {
		time.Sleep(time.Duration(s.tries) * 200 * time.Microsecond)
		s.tries++
		now = atomic.LoadUint64(word) // barrier changes-acquire
	}
	s.changes = now
	return true
}

// exhausted reports whether all tries were used up.
func (s *scans) exhausted() bool { return s.tries > maxTries }
