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
// replaces old[i], and may have its name. If goesOn[i], it continues old[i] and shows its value until the next publish.
// Otherwise readers see it as never sampled, as after Add. The old handles are gone. Readers find the entries with
// their Source, ByteBasis and flags.
//
// Exchange returns the errors of Add, and ErrGone. After an error all old counters are still there. ErrTruncated is the
// exception: the caller must call Remake then. No goroutine may call Remake concurrently with Exchange.
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

// takeFor takes a slot for each entry, and grows the mirror if none is free. After an error, slots are those that it has
// taken, for the caller to give back.
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

// roomFor returns ErrFull if the exchange would exceed the limit of a class. ErrGone: an old counter was removed.
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

// exchanging is the sign bit, which no time has. While an Exchange builds a counter, the freed_at of its BUILDING entry
// has this bit, and the handle of the counter to be replaced in the others.
const exchanging = math.MinInt64

// replacing returns the freed_at of an entry that replaces the counter of h.
func replacing(h Handle) int64 {
	return exchanging | int64(h.Index)<<32 | int64(h.Generation)
}

// replacedHandle returns the handle in a freed_at made by replacing.
func replacedHandle(freedAt int64) Handle {
	bits := uint64(freedAt &^ exchanging)
	return Handle{Index: uint32(bits >> 32), Generation: uint32(bits)}
}

// exchangeIn is Exchange with the slots of the new counters. It makes every check before it removes the first counter,
// because from then on it must not fail.
//
// A kill stops the process at one point of its program. The next writer gets the lock after that, so it sees every store
// before the point and none behind it, on any processor. If no old counter is RETIRED, it drops the new counters. If one
// is, all new entries and values are complete, and it finishes the swap.
//
// A reader that loads LIVE of a new counter with acquire finds every old counter RETIRED and the new value published,
// because the writer stores both before LIVE, with release.
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

// swap removes the counters old and shows the counters fresh, which build has prepared.
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

// finishExchange finishes or drops an Exchange in which the last writer was killed. slots are those of its new counters
// which are still BUILDING. If the swap had begun, it is finished; otherwise the new counters are dropped.
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

// leftExchange reads a killed Exchange from its BUILDING entries. It returns the old counters that are still LIVE, the
// new counters, and whether the swap had begun, which a RETIRED old counter shows.
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
		case err != nil: // the file is damaged: the handle is of no segment
		case q.live(h):
			old = append(old, h)
			if name := getString(q.entry().name[:]); names[name] == h.Index {
				delete(names, name)
			}
		case q.entry().identity == identity(entRetired, h.Generation):
			begun = true
		}
	}

	// In a damaged file two new counters may replace the same old one, or two counters may get one name. Drop those.
	whole := len(replaced) == len(fresh) && len(names) == len(w.names)-len(old)+len(fresh)
	return old, fresh, begun && whole
}

// giveAllBack gives back the slots of takeFor, the last one first, which restores the order of the free list.
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
