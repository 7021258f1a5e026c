package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Add adds a counter, which shows as never sampled until it is published. Add ignores e.Handle and e.AddedAt. If no
// slot is free the mirror grows by a segment, and cycles do not wait for that. ErrExists, ErrInvalid; ErrFull: the
// limit of Options is reached, or no space is left for a segment.
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

// add is Add in the slots that are there. errNoSlot: none is free.
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

// build makes e the counter of slot i, up to the store that shows it to readers, which is reveal's. v is the value
// that the counter shows, of cycle, or absent. freedAt is not 0 in an Exchange: see exchanging.
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
	w.scratch.live = ent.live // goes on counting: readers of the slot's last counter still compare it

	// From here on a takeover knows every state that a kill can leave. It makes a BUILDING entry RETIRED (or LIVE, in
	// an Exchange), and clears a row whose live bit is set without a LIVE entry.
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

// reveal shows readers the counter that build has made.
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

// Remove ends a counter. From here on readers of its handle get ErrGone. The slot cools down before it serves
// another counter.
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

// retire ends a counter for readers. clear follows.
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

// clear publishes a retired slot as free.
func (w *Writer) clear(h Handle) {
	p, _ := w.v.place(h.Index)
	ent := p.entry()
	if s := w.slotOf(ent); s != nil {
		s.withdraw() // after RETIRED, where readers of the slot then find the reason
	}
	w.publishRow(h.Index, p, Value{}, 0, false, true)
	w.step("remove-absent")
	w.release(h.Index, ent, ent.freedAt)
	w.step("remove-done")
}

// publishRow sets the live bit of index i, and publishes its block or record: v, of cycle, becomes the value of i,
// and the other values stay. freed raises the epoch.
//
// A block is published a second time, without a change, if the first time moved its parity away from its segment's:
// a snapshot copies blocks of one parity in one piece.
func (w *Writer) publishRow(i uint32, p place, v Value, cycle uint64, live, freed bool) {
	if p.latency() {
		w.setLive(i, live)
		r := p.record()
		w.putRecord(r, nextSeq(r.seq, freed), v, cycle)
		return
	}

	b := p.block()
	parity, ok := w.parity(int(i / SegmentLen)) // before i is in use, and counts
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
