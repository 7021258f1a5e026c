package shm

import (
	"cmp"
	"errors"
	"sync/atomic"
)

// giveUp marks the mirror as given up for ever: another file has its name, or will have it. by is the number of that file, or 0
// if it is not known. From then on readers return ErrStale.
//
// The quick form of HandleCounter.Load looks at nothing but a sequence word. So giveUp raises every sequence word by two, which
// sends those readers the slow way and keeps the current copy current. Live.Load looks at the first live word, which giveUp
// raises likewise. It writes no other word.
func (v *view) giveUp(by uint64) error {
	atomic.StoreUint64(&v.hdr.replaced, max(by, 1))

	list, err := v.segments()
	high := v.high
	if _, ferr := v.hdr.fixed(); ferr != nil { // somebody overwrote the header, so do not trust its high-water marks
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

// moveSeq raises a sequence word by two. The mark comes first and this is a store-release, so a reader that sees the raised
// word sees the mark.
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

// GiveUp marks the mirror as given up for ever, and closes the writer. Another file must have its name, or get it. by is the
// File of that one, or 0 if it is not known. From then on readers return ErrStale. ErrTruncated: the file was cut short, so
// only the rest of it is marked.
func (w *Writer) GiveUp(by uint64) error {
	err := w.control(func() error { return w.v.giveUp(by) })
	if errors.Is(err, ErrClosed) {
		return err
	}
	return cmp.Or(err, w.Close())
}
