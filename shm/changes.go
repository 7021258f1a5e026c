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

// setSwapping tells readers that an Exchange begins or ends to swap counters: in between, counters that go on
// may be missing (barrier changes-release).
func (w *Writer) setSwapping(on bool) {
	word := &w.v.hdr.catalogueChanges
	if *word&swapping != 0 != on {
		atomic.AddUint64(word, swapping)
	}
}

// scans decides how often one listing scans the catalogue. An Exchange removes all its old counters before it
// shows the new ones, so that a scan beside it may miss counters that go on.
type scans struct {
	changes uint64 // catalogueChanges before the latest scan
	tries   int
}

// next reports whether to scan the entries: a first time, and again if an Exchange was swapping counters beside
// the latest scan. It waits for the end of a swap, because a writer may wait for a CPU. Scans and pauses count
// as tries, of which there are maxTries and one: the pauses sum up to 0.4 s.
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
