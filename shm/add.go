package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Add adds a counter. Readers see it as never sampled until the first publish. Add ignores e.Handle and e.AddedAt. If
// no slot is free, the mirror grows by a segment; cycles do not wait for that. ErrExists: a counter has the name.
// ErrInvalid: the entry does not fit the format. ErrFull: the limit of Options is reached, or the file system has no
// space for a segment.
func (w *Writer) Add(e Entry) (Handle, error) {
	for {
		var h Handle
		err := w.control(func() (err error) {
			h, err = w.add(e)
			return err
		})
		if !errors.Is(err, errNoSlot) {
			return h, err
		}
		if err := w.growOrRefuse(classOf(e.Latency)); err != nil {
			return h, fmt.Errorf("%s: adding counter %q: %w", w.path, e.Name, err)
		}
	}
}

// add is Add without growth. errNoSlot: no slot is free.
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
	if err != nil {
		return h, err
	}
	w.reveal(h)
	return h, nil
}

// build makes e the counter of slot i, except for the store that shows it to readers: reveal does that. v, of cycle, is
// the value that the counter shows first; it may be absent. freedAt is 0 except in an Exchange: see exchanging.
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
	w.scratch.live = ent.live // never restart its number: readers of the slot's last counter still compare it

	// From here on a kill may leave any of the states below, and the next writer's adopt repairs each of them: it makes
	// a BUILDING entry RETIRED (or LIVE, in an Exchange), and clears a row whose live bit is set without a LIVE entry.
	w.step("add-begin")
	w.raiseHigh(i)
	w.step("add-raised")
	atomic.StoreUint64(&ent.identity, w.scratch.identity)
	storeFence() // barrier add-fence: BUILDING before the fields (idle: the slot's removal was published with a fence)
	w.step("add-building")
	copyWords(wordsAt(ent), wordsAt(&w.scratch))
	w.step("add-filled")
	w.publishRow(i, p, v, cycle, true, false)
	w.step("add-absent")
	return e.Handle, nil
}

// reveal shows readers a counter that build has prepared.
func (w *Writer) reveal(h Handle) {
	p, _ := w.v.place(h.Index)
	ent := p.entry()
	// barrier live-release: the fields before LIVE (idle in Add: the publish of the row has a store fence). In an Exchange it
	// also orders RETIRED of every old counter before LIVE of every new one, so no reader sees both LIVE.
	publish64(&ent.identity, identity(entLive, h.Generation))
	w.step("add-live")

	w.names[getString(ent.name[:])] = h.Index
	w.countUsed(p, 1)
	w.changed()
	w.spend(h.Generation)
	w.step("add-done")
}

// Remove removes a counter. From now on its handle gives readers ErrGone. The slot cools down before another counter
// gets it.
func (w *Writer) Remove(h Handle) error {
	return w.control(func() error {
		if _, err := w.place(h); err != nil {
			return err
		}
		w.retire(h, Now())
		w.clear(h)
		return nil
	})
}

// retire makes a counter gone for readers. The caller must call clear next.
func (w *Writer) retire(h Handle, now int64) {
	p, _ := w.v.place(h.Index)
	ent := p.entry()
	w.step("remove-begin")
	w.putLive(ent, LiveSlot{})
	atomic.StoreInt64(&ent.freedAt, now)
	// barrier retire-release: freed_at, and in an Exchange the beginning of the swap (setSwapping), before RETIRED. (Idle in
	// Remove: the publish that follows has a store fence.)
	publish64(&ent.identity, identity(entRetired, h.Generation))
	w.step("remove-retired")

	delete(w.names, getString(ent.name[:]))
	w.countUsed(p, -1)
	w.changed()
}

// clear publishes a retired slot as free.
func (w *Writer) clear(h Handle) {
	p, _ := w.v.place(h.Index)
	ent := p.entry()
	if s := w.slotOf(ent); s != nil {
		s.withdraw() // after RETIRED: a reader who loses the slot looks there for the reason
	}
	w.publishRow(h.Index, p, Value{}, 0, false, true)
	w.step("remove-absent")
	w.release(h.Index, ent, ent.freedAt)
	w.step("remove-done")
}

// publishRow sets or clears the live bit of index i, and publishes its block or record with v, of cycle, as the value
// of i. The other values of the block stay. freed raises the epoch.
//
// If this publish gives a block another parity than the rest of its segment, publishRow publishes it once more without
// a change: a snapshot copies adjacent blocks of one parity in one piece.
func (w *Writer) publishRow(i uint32, p place, v Value, cycle uint64, live, freed bool) {
	if p.latency() {
		w.setLive(i, live)
		r := p.record()
		w.putRecord(r, nextSeq(r.seq, freed), v, cycle)
		return
	}

	b := p.block()
	parity, ok := w.parity(int(i / SegmentLen)) // before setLive, so that the block of i itself counts only if it was in use
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
