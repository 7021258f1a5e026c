package shm

import (
	"cmp"
	"errors"
	"sync/atomic"
)

// giveUp marks the mirror as given up for ever: another file has its name or will have it. by is the word that names that
// file; 0: not known. From then on readers return ErrStale.
//
// The quick form of HandleCounter.Load compares nothing but a sequence word. So every sequence word moves on, by two: it then
// differs, and the copy under it stays the current one. Live.Load compares the live words, which move likewise. No other
// word is written.
func (v *view) giveUp(by uint64) error {
	atomic.StoreUint64(&v.hdr.replaced, max(by, 1))

	list, err := v.segments()
	high := v.high
	if _, ferr := v.hdr.fixed(); ferr != nil { // the header was overwritten, and the high-water marks with it
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
				moveSeq(&s.records.records[k].seq)
			}
			continue
		}
		for i := range blocksUsed(high(n)) {
			moveSeq(block{s.blocks, i}.seq())
		}
	}
	return err
}

// moveSeq moves a sequence word on by two.
func moveSeq(seq *uint64) {
	s := atomic.LoadUint64(seq)
	publish64(seq, nextSeq(nextSeq(s, false), false)) // barrier give-up-release
}

// File returns the random number in the header that names this file. Remake changes it.
func (w *Writer) File() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.v.fixed.file
}

// GiveUp marks the mirror as given up for ever, and closes the writer: another file has its name or will have it. by is the
// File of that one; 0: not known. From then on readers return ErrStale. ErrTruncated: the file was cut short, and is marked
// as far as it goes.
func (w *Writer) GiveUp(by uint64) error {
	err := w.control(func() error { return w.v.giveUp(by) })
	if errors.Is(err, ErrClosed) {
		return err
	}
	return cmp.Or(err, w.Close())
}
