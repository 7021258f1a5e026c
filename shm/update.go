package shm

import "fmt"

// SetSource names the source of the counter from now on.
func (w *Writer) SetSource(h Handle, source, basis string) error {
	return w.update(h, func(s *slotMem) error { return s.setSource(source, basis) })
}

// SetFlags stores how far the counter's value can be trusted.
func (w *Writer) SetFlags(h Handle, valid, stale, ambiguous bool) error {
	return w.update(h, func(s *slotMem) error {
		s.setFlags(valid, stale, ambiguous)
		return nil
	})
}

// SetContinuity stores the base from which the next writer goes on with the total.
func (w *Writer) SetContinuity(h Handle, c Continuity) error {
	return w.update(h, func(s *slotMem) error {
		s.setContinuity(c)
		return nil
	})
}

// update changes the two-slot part of an entry, whole or not at all. Nothing is stored if change changes nothing.
func (w *Writer) update(h Handle, change func(*slotMem) error) error {
	return w.onEntry(h, func(ent *entryMem) error {
		current := ent.slots[ent.seq&1]
		next := current
		if err := change(&next); err != nil {
			return fmt.Errorf("%s: changing counter %q: %w", w.path, getString(ent.name[:]), err)
		}
		if next != current {
			w.putSlot(ent, &next)
		}
		return nil
	})
}

// putSlot makes s the current slot of ent.
func (w *Writer) putSlot(ent *entryMem, s *slotMem) {
	next := ent.seq + 1
	w.step("update-begin")
	storeFence() // barrier publish-fence
	copyWords(wordsAt(&ent.slots[next&1]), wordsAt(s))
	w.step("update-filled")
	publish64(&ent.seq, next) // barrier publish-release
	w.step("update-done")
	w.changed()
}
