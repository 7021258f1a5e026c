package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Add adds a counter. It shows as never sampled until it is published. e.Handle and e.AddedAt are ignored. A mirror in
// which no slot is free grows by a segment, which cycles do not wait for. ErrExists, ErrInvalid; ErrFull: the limit of
// Options is reached, or no space is left for a segment.
func (w *Writer) Add(e Entry) (Handle, error) {
	for {
		var h Handle
		err := w.control(func() (err error) { h, err = w.add(e); return err })
		if !errors.Is(err, errNoSlot) {
			return h, err
		}
		if err := w.growOrRefuse(classOf(e.Latency)); err != nil {
			return h, fmt.Errorf("%s: adding counter %q: %w", w.path, e.Name, err)
		}
	}
}

// add is Add where a slot is free; errNoSlot: none is.
func (w *Writer) add(e Entry) (Handle, error) {
	if _, ok := w.names[e.Name]; ok {
		return Handle{}, fmt.Errorf("%s: adding counter %q: %w", w.path, e.Name, ErrExists)
	}
	now := Now()
	i, err := w.take(classOf(e.Latency), now)
	if errors.Is(err, errNoSlot) {
		return Handle{}, err
	}
	if err != nil {
		return Handle{}, fmt.Errorf("%s: adding counter %q: %w", w.path, e.Name, err)
	}
	h, err := w.build(i, e, now, 0, Value{}, 0)
	if err == nil {
		w.reveal(h)
	}
	return h, err
}

// build makes e the counter of slot i up to the store that shows it to readers. freedAt is not 0 in an Exchange. v was
// published in cycle, or is absent.
func (w *Writer) build(i uint32, e Entry, now, freedAt int64, v Value, cycle uint64) (Handle, error) {
	p, err := w.v.place(i)
	if err != nil {
		return Handle{}, fmt.Errorf("%s: adding counter %q: %w", w.path, e.Name, err)
	}
	ent := p.entry()
	e.Handle = Handle{Index: i, Generation: uint32(ent.identity) + 1}
	e.AddedAt = now
	if err := e.encode(&w.scratch, epochOf(*p.seq())); err != nil {
		w.giveBack(i, ent)
		return Handle{}, fmt.Errorf("%s: adding counter: %w", w.path, err)
	}
	w.scratch.freedAt = freedAt
	w.scratch.live = ent.live // goes on: readers of the slot's last counter hold it

	// From here on every state that a kill can leave is one that takeover knows: BUILDING becomes RETIRED (or LIVE:
	// Exchange), and a row that is set live without a LIVE entry is cleared.
	w.step("add-begin")
	w.raiseHigh(i)
	w.step("add-raised")
	atomic.StoreUint64(&ent.identity, w.scratch.identity)
	storeFence() // barrier add-fence (idle: the publish of the removal before has one)
	w.step("add-building")
	copyWords(wordsAt(ent), wordsAt(&w.scratch))
	w.step("add-filled")
	w.publishRow(i, p, v, cycle, true, false)
	w.step("add-absent")
	return e.Handle, nil
}

// reveal shows the counter that build has made.
func (w *Writer) reveal(h Handle) {
	p, _ := w.v.place(h.Index)
	ent := p.entry()
	// barrier live-release (idle in Add: the publish of the row has a store fence; in Exchange it orders RETIRED before LIVE)
	publish64(&ent.identity, identity(entLive, h.Generation))
	w.step("add-live")
	w.names[getString(ent.name[:])] = h.Index
	w.countUsed(p, 1)
	w.changed()
	w.spend(h.Generation)
	w.step("add-done")
}

// Remove ends a counter. Readers that hold it get ErrGone from here on; the slot cools down before it serves another.
func (w *Writer) Remove(h Handle) error {
	return w.control(func() error {
		_, err := w.place(h)
		if err == nil {
			w.retire(h, Now())
			w.clear(h)
		}
		return err
	})
}

// retire ends the counter for readers. clear follows.
func (w *Writer) retire(h Handle, now int64) {
	p, _ := w.v.place(h.Index)
	ent := p.entry()
	w.step("remove-begin")
	w.putLive(ent, LiveSlot{})
	atomic.StoreInt64(&ent.freedAt, now)
	// barrier retire-release (idle in Remove: the publish that follows has a store fence; in Exchange: setSwapping)
	publish64(&ent.identity, identity(entRetired, h.Generation))
	w.step("remove-retired")
	delete(w.names, getString(ent.name[:]))
	w.countUsed(p, -1)
	w.changed()
}

// clear publishes the slot of a counter that retire has ended as free.
func (w *Writer) clear(h Handle) {
	p, _ := w.v.place(h.Index)
	ent := p.entry()
	if s := w.slotOf(ent); s != nil {
		s.withdraw() // after RETIRED: its readers look there for the reason
	}
	w.publishRow(h.Index, p, Value{}, 0, false, true)
	w.step("remove-absent")
	w.release(h.Index, ent, ent.freedAt)
	w.step("remove-done")
}

// publishRow sets whether index i belongs to a counter, and publishes its block or record with v, of cycle, as i's
// value, the other values as they are, and the epoch raised when i was freed. A block is published twice, or once where
// its parity was another than the segment's: then both are the same.
func (w *Writer) publishRow(i uint32, p place, v Value, cycle uint64, live, freed bool) {
	if p.latency() {
		w.setLive(i, live)
		r := p.record()
		w.putRecord(r, nextSeq(r.seq, freed), v, cycle)
		return
	}
	b := p.block()
	parity, ok := w.parity(int(i / SegmentLen))
	if !ok {
		parity = *b.seq() & 1
	}
	w.setLive(i, live)
	rows := w.live[i/BlockLen]
	w.republish(b, int(i%BlockLen), v, cycle, rows, freed)
	if *b.seq()&1 != parity {
		w.republish(b, -1, Value{}, 0, rows, false)
	}
}
