package shm

import (
	"fmt"
	"path/filepath"
)

// Remake makes the mirror anew, in another file of the same name, and continues there. It takes nothing from the old file,
// which may be damaged. entries must be all live counters, and each of them gets its old handle. Handles of other counters
// are gone. Values are absent until they are published, and the history starts empty. Readers of the old file get ErrStale, if
// Remake can still mark it. Cycles wait only for the exchange of the files. After an error the writer still has the old file.
func (w *Writer) Remake(entries []Entry) error {
	w.growing.Lock()
	defer w.growing.Unlock()
	file, err := randomWord()
	if err != nil {
		return err
	}

	w.mu.Lock()
	list := *w.v.list.Load()
	history := w.v.fixed.history
	closed := w.closed
	w.mu.Unlock()
	if closed {
		return ErrClosed
	}
	kinds := make([]uint32, 0, len(list))
	for _, s := range list {
		kinds = append(kinds, s.kind)
	}

	if err := w.remake(file, history, kinds, entries); err != nil {
		return fmt.Errorf("%s: making the mirror anew: %w", w.path, err)
	}
	return nil
}

// remake is Remake. file is the number that names the new file; history and kinds are as in the old one.
func (w *Writer) remake(file uint64, history uint32, kinds []uint32, entries []Entry) error {
	if _, err := prepareDir(filepath.Dir(w.path), w.log); err != nil {
		return err
	}
	if err := w.keepLock(); err != nil {
		return err
	}
	d, err := newDraft(w.path, segmentOffset(history, uint32(len(kinds))), w.mode, w.reserve, w.step)
	if err != nil {
		return err
	}

	var v *view
	err = Guard(func() (err error) {
		if v, err = formatFile(d.store(), history, kinds, file); err != nil {
			return err
		}
		if err := v.fill(entries); err != nil {
			return err
		}
		return w.exchange(d, v, entries)
	})
	if err != nil {
		if v != nil {
			v.unmap()
		}
		d.drop()
	}
	return err
}

// fill adds entries to v as its live counters. Except for its header v must be zero.
func (v *view) fill(entries []Entry) error {
	list, err := v.segments()
	if err != nil {
		return err
	}
	high := make([]uint32, len(list)) // slots in use, by segment
	for _, e := range entries {
		if n := int(e.Handle.Index / SegmentLen); n < len(high) {
			high[n] = max(high[n], e.Handle.Index%SegmentLen+1)
		}
	}
	for n, s := range list {
		s.populate(high[n])
	}

	var scratch entryMem
	for _, e := range entries {
		p, err := v.place(e.Handle.Index)
		if err != nil {
			return fmt.Errorf("counter %q: %w", e.Name, err)
		}
		if err := e.encode(&scratch, 0); err != nil {
			return fmt.Errorf("counter %q: %w", e.Name, err)
		}
		scratch.identity = identity(entLive, e.Handle.Generation)
		copyWords(wordsAt(p.entry()), wordsAt(&scratch))

		d := &v.hdr.table[e.Handle.Index/SegmentLen]
		d.high = max(d.high, p.n+1)
		if p.latency() {
			v.hdr.recordsUsed++
			continue
		}
		v.hdr.countersUsed++
		// Make the block look published once: if the writer is killed before the first cycle, Check must find a whole mirror.
		b := p.block()
		*b.seq(), *b.intent() = 1, 1
		b.copy(1).live |= 1 << (p.n % BlockLen)
	}
	return nil
}

// populate maps the pages of the slots below high, so that no store of a cycle causes a page fault. Other pages are mapped at
// first use.
func (s *segment) populate(high uint32) {
	if high == 0 {
		return
	}
	populate(s.m, segEntries, uint64(high)*entrySize)
	if s.kind == kindRecords {
		populate(s.m, segRecords, uint64(high)*recordSize)
		return
	}
	copies := uint64(blocksUsed(high)) * copySize
	populate(s.m, segSeq, segCopy0-segSeq+copies) // the words of all blocks: two pages
	populate(s.m, segCopy1, copies)
}

// exchange gives the draft the mirror's name, and makes v the writer's view. The rename is the point of no return: every check
// and every store that may fault comes before it.
func (w *Writer) exchange(d *draft, v *view, entries []Entry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}

	now := Now()
	w.introduce(v.hdr, now)
	v.hdr.cycleBegun = w.cycle
	v.hdr.cycleDone = w.cycle
	v.hdr.cycleDoneAt = now
	w.nameDevices(v)

	names := make(map[string]uint32, len(entries))
	live := make([]uint64, len(w.live))
	for _, e := range entries {
		names[e.Name] = e.Handle.Index
		live[e.Handle.Index/BlockLen] |= 1 << (e.Handle.Index % BlockLen)
	}
	free := w.retireOthers(v, live, now)
	v.ready()
	w.step("remake-ready")
	if err := d.name(); err != nil {
		return err
	}
	w.step("remake-renamed")

	old := w.v
	w.v = v
	w.faulted = false
	w.names, w.live, w.free = names, live, free
	_ = Guard(func() error { return old.giveUp(v.fixed.file) })
	old.unmap()
	if err := old.close(); err != nil {
		w.log.Debug("closing the mirror that was made anew", "path", w.path, "err", err)
	}
	return nil
}

// nameDevices stores in the entries of v which slots of the device segment serve them. The segment itself does not change,
// because a device may be writing to it.
func (w *Writer) nameDevices(v *view) {
	if w.device == nil {
		return
	}
	v.hdr.deviceGeneration = w.device.v.fixed.generation
	v.hdr.deviceLength = w.device.v.fixed.fileLength
	for _, s := range w.device.slots {
		if s == nil || !s.set {
			continue
		}
		if p, err := v.place(s.handle.Index); err == nil && p.live(s.handle) {
			p.entry().slots[0].device = s.number + 1
		}
	}
}

// retireOthers retires every slot of v that was used and has no counter in live, and makes it cool down. The next counter of
// the slot gets a generation above w.spent, so no old handle ever names it.
func (w *Writer) retireOthers(v *view, live []uint64, now int64) [2]freeList {
	free := w.free
	for class := range free {
		free[class].cooling = nil
	}
	for n, s := range *v.list.Load() {
		f := &free[classOf(s.kind == kindRecords)]
		for k := range uint32(SegmentLen) {
			i := uint32(n)*SegmentLen + k
			if i >= f.next || live[i/BlockLen]>>(i%BlockLen)&1 == 1 {
				continue
			}
			f.cooling = append(f.cooling, cooling{index: i, freedAt: now})
			if w.spent == 0 {
				continue // no handle was ever given out
			}
			e := &s.entries[k]
			e.identity = identity(entRetired, w.spent)
			e.freedAt = now
			v.hdr.table[n].high = max(v.hdr.table[n].high, k+1)
		}
	}
	return free
}
