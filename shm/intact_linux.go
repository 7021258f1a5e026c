package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Intact checks that other processes have not damaged the mirror. The error says how they did, and the caller should call
// Remake. Call Intact about once in a heartbeat period.
//
// An intact mirror has its name, its length, its header and its live entries, and no access to it has faulted. Each call
// checks only some of the entries. Intact also repairs the files beside the mirror: if the lock's file or the page of waiters
// was removed or replaced, it takes the lock again (ErrInUse: another process has taken it meanwhile), and makes the page
// anew.
func (w *Writer) Intact() error {
	w.growing.Lock()
	err := w.keepLock()
	w.growing.Unlock()
	if errors.Is(err, ErrInUse) {
		return err
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	w.waker.keep()
	if err := w.fileIntact(); err != nil {
		return err
	}
	if w.faulted {
		return fmt.Errorf("%s: a page of the mirror was not there: it was cut short, or has a hole that no space is left for: %w", w.path, ErrTruncated)
	}
	return w.guard(func() error {
		if err := w.headerIntact(); err != nil {
			return err
		}
		return w.sampleEntries()
	})
}

// fileIntact returns nil if the mirror's file has its name and its length.
func (w *Writer) fileIntact() error {
	f := w.v.store.(fileStore).File
	var st, named unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("%s: looking at the mirror: %w", w.path, err)
	}
	switch err := unix.Lstat(w.path, &named); {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s: the mirror was removed: %w", w.path, err)
	case err != nil:
		return fmt.Errorf("%s: looking at the mirror: %w", w.path, err)
	case idOf(&st) != idOf(&named):
		return fmt.Errorf("%s: another file has the mirror's name: %w", w.path, ErrStale)
	}

	segments := uint32(len(*w.v.list.Load()))
	if end := segmentOffset(w.v.fixed.history, segments); uint64(st.Size) < end {
		return fmt.Errorf("%s: the mirror was cut short: %d of %d bytes are there: %w", w.path, st.Size, end, ErrTruncated)
	}
	return nil
}

// headerIntact returns nil if the header is the one that this writer wrote.
func (w *Writer) headerIntact() error {
	fixed, err := w.v.hdr.fixed()
	if err != nil || fixed.checksum != w.v.fixed.checksum || atomic.LoadUint64(&w.v.hdr.generation) != w.generation ||
		w.v.declared() != len(*w.v.list.Load()) {
		return fmt.Errorf("%s: the mirror's header was overwritten: %w", w.path, ErrFormat)
	}
	return nil
}

// sampleEntries checks one live counter of each block in a heartbeat period, and the next one of each block in the next
// period. So it finds a hole or an overwritten part of the catalogue within 64 periods. A call checks the blocks that
// are due since the last call, and at least as many as a segment has. It does not check all of them each time, because
// each look at an entry is a cache miss, and every change of a flow calls Intact.
func (w *Writer) sampleEntries() error {
	now := Now()
	periods := min(float64(now-w.sample.at)/float64(w.heartbeat), 1)
	w.sample.at = now

	for range min(max(int(periods*float64(len(w.live))), segmentBlocks), len(w.live)) {
		if w.sample.block++; w.sample.block >= len(w.live) {
			w.sample.block = 0
			w.sample.row++
		}
		n, from := w.sample.block, w.sample.row%BlockLen
		live := w.live[n]
		if live == 0 {
			continue
		}
		row := (bits.TrailingZeros64(bits.RotateLeft64(live, -from)) + from) % BlockLen
		p, err := w.v.place(uint32(n*BlockLen + row))
		if err != nil {
			return err
		}
		if atomic.LoadUint64(&p.entry().identity)>>32 != entLive {
			return fmt.Errorf("%s: the entry of counter %d was overwritten: %w", w.path, n*BlockLen+row, ErrFormat)
		}
	}
	return nil
}
