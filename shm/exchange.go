package shm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Exchange removes the counters old and adds entries: all or none, even if the writer is killed meanwhile. entries[i]
// takes the place of old[i], and may have its name. Where goesOn[i], it is the same counter, and shows the value of
// old[i] until it is published. Elsewhere it shows as never sampled, as after Add. Old handles name no counter any more.
// Readers find the entries with their Source, ByteBasis and flags.
//
// Exchange returns the errors of Add, and ErrGone. After an error every old counter exists, except after ErrTruncated:
// then Remake follows. No goroutine may call Remake beside Exchange.
func (w *Writer) Exchange(old []Handle, entries []Entry, goesOn []bool) ([]Handle, error) {
	slots, err := w.takeFor(old, entries)
	if err == nil {
		var out []Handle
		err = w.control(func() (err error) {
			out, err = w.exchangeIn(slots, old, entries, goesOn)
			return err
		})
		if err == nil {
			return out, nil
		}
	}
	if !errors.Is(err, ErrTruncated) {
		err = errors.Join(err, w.control(func() error { return w.giveAllBack(slots) }))
	}
	return nil, fmt.Errorf("%s: exchanging %d counters: %w", w.path, len(old), err)
}

// takeFor takes a slot for each entry. The mirror grows when none is free. With an error slots are those that were
// taken by then.
func (w *Writer) takeFor(old []Handle, entries []Entry) (slots []uint32, err error) {
	err = w.control(func() error { return w.roomFor(old, entries) })
	if err != nil {
		return nil, err
	}

	slots = make([]uint32, 0, len(entries))
	for len(slots) < len(entries) {
		err := w.control(func() error {
			now := Now()
			for len(slots) < len(entries) {
				i, err := w.takeFree(classOf(entries[len(slots)].Latency), now)
				if err != nil {
					return err
				}
				slots = append(slots, i)
			}
			return nil
		})
		if errors.Is(err, errNoSlot) {
			err = w.growOrRefuse(classOf(entries[len(slots)].Latency))
		}
		if err != nil {
			return slots, err
		}
	}
	return slots, nil
}

// roomFor returns ErrFull if the limit of a class is below what there would be with entries and without old. ErrGone:
// an old counter was removed.
func (w *Writer) roomFor(old []Handle, entries []Entry) error {
	var more [2]int // by class
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
		if err := w.full(class, n-1); err != nil {
			return err
		}
	}
	return nil
}

// exchanging is the sign bit. While an Exchange builds a counter, the freed_at of its BUILDING entry holds the handle
// that the counter replaces, with this bit set: no time is below 0.
const exchanging = math.MinInt64

// replacing returns the freed_at of an entry that replaces the counter of h.
func replacing(h Handle) int64 {
	return exchanging | int64(h.Index)<<32 | int64(h.Generation)
}

// replacedHandle returns the handle in a freed_at that replacing has made.
func replacedHandle(freedAt int64) Handle {
	bits := uint64(freedAt &^ exchanging)
	return Handle{Index: uint32(bits >> 32), Generation: uint32(bits)}
}

// exchangeIn is Exchange with the slots of the new counters. It refuses all that can be refused before it removes the
// first counter.
//
// A kill ends the instructions of a process at one point of their order, and the next writer takes the lock
// afterwards: it sees each store before that point. As long as no old counter is RETIRED it finds all old counters
// LIVE, and drops the new ones. From then on all new entries and values are complete, and it goes on from there. A
// reader that finds a new counter LIVE finds all old ones RETIRED, because LIVE is stored with release, and finds the
// new value.
func (w *Writer) exchangeIn(slots []uint32, old []Handle, entries []Entry, goesOn []bool) ([]Handle, error) {
	leaving := make(map[uint32]bool, len(old)) // by index
	values := make([]Value, len(old))
	cycles := make([]uint64, len(old))
	for i, h := range old {
		v, cycle, err := w.v.valueAt(h, math.MaxUint64)
		if err != nil || leaving[h.Index] {
			return nil, cmp.Or(err, ErrGone)
		}
		leaving[h.Index] = true
		if goesOn[i] {
			values[i], cycles[i] = v, cycle
		}
	}
	if err := w.checkNew(entries, leaving); err != nil {
		return nil, err
	}

	fresh := make([]Handle, len(entries))
	now := Now()
	for i, e := range entries {
		var err error
		if fresh[i], err = w.build(slots[i], e, now, replacing(old[i]), values[i], cycles[i]); err != nil {
			return nil, err
		}
	}
	w.swap(old, fresh)
	return fresh, nil
}

// checkNew returns an error if an entry is invalid, or has the name of another one or of a counter that is not leaving.
func (w *Writer) checkNew(entries []Entry, leaving map[uint32]bool) error {
	names := make(map[string]bool, len(entries))
	for i := range entries {
		e := &entries[i]
		at, taken := w.names[e.Name]
		if taken && !leaving[at] || names[e.Name] {
			return fmt.Errorf("adding counter %q: %w", e.Name, ErrExists)
		}
		names[e.Name] = true
		if err := e.encode(&w.scratch, 0); err != nil {
			return err
		}
	}
	return nil
}

// swap ends the counters old and shows the counters fresh, which build has made.
func (w *Writer) swap(old, fresh []Handle) {
	w.step("exchange-built")
	w.setSwapping(true)
	w.step("exchange-begun")
	now := Now()
	for _, h := range old {
		w.retire(h, now)
		w.step("exchange-retired")
	}
	for _, h := range fresh {
		w.reveal(h)
		w.step("exchange-revealed")
	}
	w.setSwapping(false)
	w.step("exchange-done")
	for _, h := range old {
		w.clear(h)
	}
}

// finishExchange ends an Exchange in which the last writer was killed. slots hold its new counters that are still
// BUILDING. If the swap had begun it is finished, otherwise the new counters are dropped.
func (w *Writer) finishExchange(slots []uint32, now int64) {
	old, fresh, begun := w.leftExchange(slots)
	for _, h := range fresh {
		p, _ := w.v.place(h.Index)
		if begun {
			w.putLive(p.entry(), LiveSlot{})
			w.setLive(h.Index, true)
		} else {
			w.adoptEntry(h.Index, p, now)
		}
	}
	if begun {
		w.swap(old, fresh)
	}
}

// leftExchange reads an Exchange from its BUILDING entries: the old counters that are still LIVE, the new counters, and
// whether the swap had begun. A RETIRED old counter says that it had.
func (w *Writer) leftExchange(slots []uint32) (old, fresh []Handle, begun bool) {
	names := maps.Clone(w.names) // index by name, as it would be after the swap
	replaced := make(map[Handle]bool)
	for _, i := range slots {
		p, _ := w.v.place(i)
		e := p.entry()
		fresh = append(fresh, Handle{Index: i, Generation: uint32(e.identity)})
		names[getString(e.name[:])] = i

		h := replacedHandle(e.freedAt)
		replaced[h] = true
		q, err := w.v.place(h.Index)
		switch {
		case err != nil: // a damaged file names a segment that is not there
		case q.live(h):
			old = append(old, h)
			if name := getString(q.entry().name[:]); names[name] == h.Index {
				delete(names, name)
			}
		case q.entry().identity == identity(entRetired, h.Generation):
			begun = true
		}
	}

	// In a damaged file two new counters may replace one, or two counters may have one name.
	whole := len(replaced) == len(fresh) && len(names) == len(w.names)-len(old)+len(fresh)
	return old, fresh, begun && whole
}

// giveAllBack returns the slots that takeFor took, the last one first, so that the free list is as it was.
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
