package shm

import "fmt"

// SetSource changes the source of the counter, and its byte basis.
func (w *Writer) SetSource(h Handle, source, basis string) error {
	return w.update(h, func(s *slotMem) error { return s.setSource(source, basis) })
}

// SetFlags changes the flags of the counter, which say how far readers can trust its value: see Entry.
func (w *Writer) SetFlags(h Handle, valid, stale, ambiguous bool) error {
	return w.update(h, func(s *slotMem) error {
		s.setFlags(valid, stale, ambiguous)
		return nil
	})
}

// SetContinuity stores what the next writer needs to continue the total.
func (w *Writer) SetContinuity(h Handle, c Continuity) error {
	return w.update(h, func(s *slotMem) error {
		s.setContinuity(c)
		return nil
	})
}

// update changes the two-slot part of an entry, whole or not at all. It stores nothing if change changes nothing.
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

// putSlot publishes s as the current slot of ent. The two slots work as the two copies of a block do: see PublishBlock.
func (w *Writer) putSlot(ent *entryMem, s *slotMem) {
	next := ent.seq + 1
	w.step("update-begin")
	storeFence() // barrier publish-fence: the last seq before the stores below
	copyWords(wordsAt(&ent.slots[next&1]), wordsAt(s))
	w.step("update-filled")
	publish64(&ent.seq, next) // barrier publish-release
	w.step("update-done")
	w.changed()
}
