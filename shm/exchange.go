package shm

import (
	"errors"
	"fmt"
	"slices"
)

// Exchange removes the counters old and adds entries, all or none: entries[i] takes the place of old[i], and
// may have its name. As after Remove and Add, old handles name no counter, and the new counters show as never
// sampled until they are published. Readers find entries with Source, ByteBasis and flags. Exchange returns the
// errors of Add, and ErrGone. After an error every old counter exists, except after ErrTruncated: Remake follows then.
func (w *Writer) Exchange(old []Handle, entries []Entry) ([]Handle, error) {
	slots, err := w.takeFor(old, entries)
	if err == nil {
		var out []Handle
		err = w.control(func() (err error) { out, err = w.exchangeIn(slots, old, entries); return err })
		if err == nil {
			return out, nil
		}
	}
	if !errors.Is(err, ErrTruncated) {
		err = errors.Join(err, w.control(func() error { return w.giveAllBack(slots) }))
	}
	return nil, fmt.Errorf("%s: exchanging %d counters: %w", w.path, len(old), err)
}

// takeFor takes a slot for each entry. The mirror grows where none is free; the limit of a class counts the old
// counters as gone. slots are those that were taken, beside an error too.
func (w *Writer) takeFor(old []Handle, entries []Entry) (slots []uint32, err error) {
	var more [2]int
	err = w.control(func() error {
		for i, h := range old {
			p, err := w.place(h)
			if err != nil {
				return err
			}
			more[classOf(p.latency())]--
			more[classOf(entries[i].Latency)]++
		}
		for class, n := range more {
			if n <= 0 {
				continue
			}
			if err := w.fullBut(class, n-1); err != nil {
				return err
			}
		}
		return nil
	})
	for _, e := range entries {
		for taken := false; err == nil && !taken; {
			var i uint32
			err = w.control(func() (err error) { i, err = w.takeFree(classOf(e.Latency), Now()); return err })
			switch {
			case err == nil:
				slots, taken = append(slots, i), true
			case errors.Is(err, errNoSlot):
				err = w.grow(classOf(e.Latency))
			}
		}
	}
	return slots, err
}

// exchangeIn is Exchange with the slots of the new counters. Everything that can be refused is refused before
// the first counter is removed.
func (w *Writer) exchangeIn(slots []uint32, old []Handle, entries []Entry) ([]Handle, error) {
	leaving := make(map[uint32]bool, len(old))
	for _, h := range old {
		if _, err := w.place(h); err != nil {
			return nil, err
		}
		leaving[h.Index] = true
	}
	names := make(map[string]bool, len(entries))
	for i := range entries {
		e := &entries[i]
		if at, ok := w.names[e.Name]; ok && !leaving[at] || names[e.Name] {
			return nil, fmt.Errorf("adding counter %q: %w", e.Name, ErrExists)
		}
		names[e.Name] = true
		if err := e.encode(&w.scratch, 0); err != nil {
			return nil, err
		}
	}
	for _, h := range old {
		if err := w.remove(h); err != nil {
			return nil, err
		}
	}
	out, now := make([]Handle, len(entries)), Now()
	for i, e := range entries {
		var err error
		if out[i], err = w.fill(slots[i], e, now); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// giveAllBack returns slots that takeFor took, the last one first, so that the free list is as it was.
func (w *Writer) giveAllBack(slots []uint32) error {
	for _, i := range slices.Backward(slots) {
		p, err := w.v.place(i)
		if err != nil {
			return err
		}
		w.giveBack(i, p.entry())
	}
	return nil
}
