package shm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Exchange removes the counters old and adds entries, all or none, also if the writer is killed meanwhile: entries[i] takes
// the place of old[i], and may have its name. Where goesOn[i], it is the same counter: it shows the value of old[i] until
// it is published. Else it shows as never sampled, as after Add. Old handles name no counter. Readers find entries with
// Source, ByteBasis and flags. Exchange returns the errors of Add, and ErrGone. After an error every old counter exists,
// except after ErrTruncated: Remake follows then, and is not to be called beside Exchange.
func (w *Writer) Exchange(old []Handle, entries []Entry, goesOn []bool) ([]Handle, error) {
	slots, err := w.takeFor(old, entries)
	if err == nil {
		var out []Handle
		err = w.control(func() (err error) { out, err = w.exchangeIn(slots, old, entries, goesOn); return err })
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
			if err := w.full(class, n-1); err != nil {
				return err
			}
		}
		return nil
	})
	slots = make([]uint32, 0, len(entries))
	for err == nil && len(slots) < len(entries) {
		class := 0
		err = w.control(func() (err error) {
			for now := Now(); err == nil && len(slots) < len(entries); {
				var i uint32
				class = classOf(entries[len(slots)].Latency)
				if i, err = w.takeFree(class, now); err == nil {
					slots = append(slots, i)
				}
			}
			return err
		})
		if errors.Is(err, errNoSlot) {
			err = w.growOrRefuse(class)
		}
	}
	return slots, err
}

// exchanging is set in the freed_at of a BUILDING entry that takes the place of the handle in the other bits.
const exchanging = math.MinInt64

// exchangeIn is Exchange with the slots of the new counters. Everything that can be refused is refused before
// the first counter is removed.
//
// A kill ends the instructions of a process at one point of their order, and the next writer takes the lock afterwards:
// it sees each store before that point. Until the first old counter is RETIRED it finds all old counters LIVE, and
// drops the new ones. From then on all new entries and values are complete, and it goes on from there. A reader that
// finds a new counter LIVE finds all old ones RETIRED, because LIVE is stored with release, and finds the new value.
func (w *Writer) exchangeIn(slots []uint32, old []Handle, entries []Entry, goesOn []bool) ([]Handle, error) {
	leaving, values, cycles := make(map[uint32]bool, len(old)), make([]Value, len(old)), make([]uint64, len(old))
	for i, h := range old {
		v, cycle, err := w.v.valueAt(h, math.MaxUint64)
		if err != nil || leaving[h.Index] {
			return nil, cmp.Or(err, ErrGone)
		}
		if leaving[h.Index] = true; goesOn[i] {
			values[i], cycles[i] = v, cycle
		}
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
	out, now := make([]Handle, len(entries)), Now()
	for i, e := range entries {
		var err error
		of := exchanging | int64(old[i].Index)<<32 | int64(old[i].Generation)
		if out[i], err = w.build(slots[i], e, now, of, values[i], cycles[i]); err != nil {
			return nil, err
		}
	}
	w.swap(old, out)
	return out, nil
}

// swap ends the counters old and shows the counters fresh, which were built.
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

// finishExchange goes on with an Exchange in which the writer before was killed. slots are the slots of its new counters
// that are BUILDING.
func (w *Writer) finishExchange(slots []uint32, now int64) {
	var old, fresh []Handle // old: those that are LIVE
	names, replaced, begun := maps.Clone(w.names), make(map[Handle]bool), false
	for _, i := range slots {
		p, _ := w.v.place(i)
		e := p.entry()
		fresh = append(fresh, Handle{Index: i, Generation: uint32(e.identity)})
		of := uint64(e.freedAt &^ exchanging)
		h := Handle{Index: uint32(of >> 32), Generation: uint32(of)}
		replaced[h] = true
		names[getString(e.name[:])] = i
		if q, err := w.v.place(h.Index); err == nil && q.live(h) {
			old = append(old, h)
			if name := getString(q.entry().name[:]); names[name] == h.Index {
				delete(names, name)
			}
		} else if err == nil {
			begun = begun || q.entry().identity == identity(entRetired, h.Generation)
		}
	}
	// In a damaged file a counter may be replaced twice, or two counters would have one name.
	begun = begun && len(replaced) == len(fresh) && len(names) == len(w.names)-len(old)+len(fresh)
	for _, h := range fresh {
		if p, _ := w.v.place(h.Index); begun {
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
