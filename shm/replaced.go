package shm

import (
	"cmp"
	"errors"
	"sync/atomic"
)

// giveUp marks the mirror as given up for ever: another file, whose word by is (0: not known), has its name or will
// have it. Readers return ErrStale from then on. Every sequence word moves on by two, so that the quick form of
// Counter.Load, which compares nothing else, goes to the slow one; the copy under it stays the current one. The words
// under which readers read counters live move in the same way. No other word is written.
func (v *view) giveUp(by uint64) error {
	atomic.StoreUint64(&v.hdr.replaced, max(by, 1))
	list, err := v.segments()
	move := func(seq *uint64) {
		s := atomic.LoadUint64(seq)
		publish64(seq, nextSeq(nextSeq(s, false), false)) // barrier give-up-release
	}
	high := v.high
	if _, ferr := v.hdr.fixed(); ferr != nil { // overwritten, and the high-water marks with it
		high = func(int) uint32 { return SegmentLen }
	}
	for n, s := range list {
		for k := range high(n) {
			if e := &s.entries[k]; atomic.LoadUint64(&e.liveMap) != 0 {
				publish64(&e.live, atomic.LoadUint64(&e.live)+2<<32)
			}
		}
		if s.kind == kindRecords {
			for k := range high(n) {
				move(&s.records.records[k].seq)
			}
			continue
		}
		for i := range blocksUsed(high(n)) {
			move(block{s.blocks, i}.seq())
		}
	}
	return err
}

// File is the random number in the header that names this file.
func (w *Writer) File() uint64 { return w.v.fixed.file }

// GiveUp marks the mirror as given up for ever and closes the writer: another file,
// whose File is by (0: not known), has its name or will have it. Readers return ErrStale from
// then on. A file that was truncated meanwhile is marked as far as it goes: ErrTruncated.
func (w *Writer) GiveUp(by uint64) error {
	err := w.control(func() error { return w.v.giveUp(by) })
	if errors.Is(err, ErrClosed) {
		return err
	}
	return cmp.Or(err, w.Close())
}
