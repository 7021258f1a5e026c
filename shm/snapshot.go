package shm

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// Label says of what instant the values of a Snapshot are.
type Label struct {
	// SameCycle: every value was published under one poll cycle, Cycle. Values
	// that were never sampled are not looked at.
	SameCycle bool
	Cycle     uint64 // 0 unless SameCycle

	MinCycle, MaxCycle uint64
	Oldest, Newest     int64 // smallest and largest sampled-at
	SkewNanos          int64 // Newest - Oldest
	Sampled            int   // blocks and single values that the label covers
}

// Snapshot holds the values of many counters, copied at one time. The zero
// value is usable; it allocates when it is filled for the first time and not
// after that. It belongs to one goroutine at a time.
type Snapshot struct {
	Label
	// List holds the values asked of Reader.SnapshotOf, in the order of its
	// handles; nil after Reader.Snapshot.
	List []Value
	// Gone counts the handles of List whose counters were removed.
	Gone int

	v       *view
	m       *mapping
	blocks  []copyMem
	records []recordCopy
}

type recordCopy struct {
	value Value
	epoch uint64
}

// Snapshot copies all counters into dst. Taken in the middle of cycle k + 1 it
// is of cycle k where the writer publishes every block once in a cycle.
// ErrBusy: the writer published too fast; dst holds nothing.
func (r *Reader) Snapshot(dst *Snapshot) error {
	return r.snapshot(dst, func() error { return r.v.snapshot(dst) })
}

// SnapshotOf copies the counters of hs into dst.List. A counter that was
// removed is absent there, and counted in Gone.
func (r *Reader) SnapshotOf(dst *Snapshot, hs []Handle) error {
	return r.snapshot(dst, func() error { return r.v.snapshotOf(dst, hs) })
}

func (r *Reader) snapshot(dst *Snapshot, fill func() error) error {
	if r.closed.Load() {
		return ErrClosed
	}
	dst.Label, dst.Gone, dst.List = Label{MinCycle: ^uint64(0), Oldest: 1<<63 - 1}, 0, dst.List[:0]
	dst.blocks, dst.records = dst.blocks[:0], dst.records[:0]
	dst.v, dst.m = r.v, r.m
	err := Guard(fill)
	runtime.KeepAlive(r)
	if err != nil {
		dst.blocks, dst.records, dst.List = dst.blocks[:0], dst.records[:0], dst.List[:0]
		dst.Label = Label{}
		return fmt.Errorf("%s: taking a snapshot: %w", r.path, err)
	}
	dst.Label.finish()
	return nil
}

func (v *view) snapshot(dst *Snapshot) error {
	nb, nr := v.high()
	if cap(dst.blocks) < nb {
		dst.blocks = make([]copyMem, len(v.blocks))
	}
	if cap(dst.records) < nr {
		dst.records = make([]recordCopy, len(v.records))
	}
	dst.blocks, dst.records = dst.blocks[:nb], dst.records[:nr]

	k := atomic.LoadUint64(&v.hdr.cycleDone)
	// Which copy a block's values are read from depends on its sequence word. It is
	// loaded one block ahead, so that no copying waits for it; being older, it can
	// only fail the check behind the copy more often.
	var next uint64
	if nb > 0 {
		next = atomic.LoadUint64(&v.blocks[0].seq)
	}
	for i := range dst.blocks {
		b, c := &v.blocks[i], &dst.blocks[i]
		// copyOut, spelt out for the case that nearly every block is in. (One
		// pass over all blocks in assembly, with and without prefetching, was
		// not faster: what it takes above a memcpy is the way through memory.)
		s := next
		if i+1 < nb {
			next = atomic.LoadUint64(&v.blocks[i+1].seq)
		}
		from := &b.copies[s&1]
		ok := atomic.LoadUint64(&from.cycle) <= k
		if ok {
			copyWords(words(c), words(from))
			loadFence()
			ok = atomic.LoadUint64(&b.seq) == s
		}
		if !ok && !b.copyOut(c, k) {
			return ErrBusy
		}
		if c.newest != 0 {
			dst.Label.add(c.cycle, c.oldest, c.newest)
		}
	}
	for i := range dst.records {
		rc := &dst.records[i]
		s, cycle, ok := v.recordOut(uint32(i), &rc.value)
		if !ok {
			return ErrBusy
		}
		rc.epoch = epochOf(s)
		if at := rc.value.SampledAt; at != 0 {
			dst.Label.add(cycle, at, at)
		}
	}
	return nil
}

// pick answers which copy of b to take under sequence word s for a snapshot of
// cycle k, and the word that is s as long as that copy stands.
func (b *blockMem) pick(s, k uint64) (c *copyMem, guard *uint64) {
	c = &b.copies[s&1]
	if atomic.LoadUint64(&c.cycle) <= k {
		return c, &b.seq
	}
	// Published in the cycle that is going on. The copy before it stands until
	// the next publish is announced: after that it is lost, for ever when the
	// writer was killed there.
	if o := &b.copies[s&1^1]; atomic.LoadUint64(&o.cycle) == k && atomic.LoadUint64(&b.intent) == s {
		return o, &b.intent
	}
	return c, &b.seq
}

// copyOut copies the copy of b that suits a snapshot of cycle k.
func (b *blockMem) copyOut(dst *copyMem, k uint64) bool {
	for range maxTries {
		s := atomic.LoadUint64(&b.seq)
		c, guard := b.pick(s, k)
		copyWords(words(dst), words(c))
		loadFence()
		if atomic.LoadUint64(guard) == s {
			return true
		}
	}
	return false
}

// recordOut reads record i, the sequence word it was read under, and its cycle.
func (v *view) recordOut(i uint32, dst *Value) (s, cycle uint64, ok bool) {
	r := &v.records[i]
	for range maxTries {
		s = atomic.LoadUint64(&r.seq)
		*dst = loadValue(&r.slots[s&1])
		low := atomic.LoadUint32(&r.cycles[s&1])
		loadFence()
		if atomic.LoadUint64(&r.seq) == s {
			// Loaded after the record: not before the cycle it names.
			begun := atomic.LoadUint64(&v.hdr.cycleBegun)
			return s, begun - uint64(uint32(begun)-low), true
		}
	}
	return 0, 0, false
}

func (v *view) snapshotOf(dst *Snapshot, hs []Handle) error {
	if cap(dst.List) < len(hs) {
		dst.List = make([]Value, len(hs))
	}
	dst.List = dst.List[:len(hs)]
	k := atomic.LoadUint64(&v.hdr.cycleDone)
	for i, h := range hs {
		val, cycle, err := v.valueAt(h, k)
		switch err {
		case nil:
		case ErrGone:
			dst.Gone++
		default:
			return err
		}
		dst.List[i] = val
		if val.SampledAt != 0 {
			dst.Label.add(cycle, val.SampledAt, val.SampledAt)
		}
	}
	return nil
}

// valueAt reads one counter for a snapshot of cycle k.
func (v *view) valueAt(h Handle, k uint64) (val Value, cycle uint64, err error) {
	if int(h.Index) >= len(v.entries) {
		return Value{}, 0, ErrGone
	}
	if i := h.Index - min(h.Index, v.counters()); h.Index >= v.counters() {
		for range maxTries {
			s := atomic.LoadUint64(&v.records[i].seq)
			if !v.live(h) {
				return Value{}, 0, ErrGone
			}
			s2, cycle, ok := v.recordOut(i, &val)
			if ok && s2 == s {
				return val, cycle, nil
			}
		}
		return Value{}, 0, ErrBusy
	}
	b, row := &v.blocks[h.Index/BlockLen], h.Index%BlockLen
	born := atomic.LoadUint64(&v.entries[h.Index].born)
	for range maxTries {
		s := atomic.LoadUint64(&b.seq)
		if !v.live(h) {
			return Value{}, 0, ErrGone
		}
		c, guard := b.pick(s, k)
		val, cycle = loadValue(&c.values[row]), atomic.LoadUint64(&c.cycle)
		epoch := atomic.LoadUint64(&c.epoch)
		loadFence()
		if atomic.LoadUint64(guard) != s {
			continue
		}
		if guard == &b.intent && (epoch < born || epoch == epochMax) {
			k = ^uint64(0) // that copy may be of the slot's former user: take the current one
			continue
		}
		return val, cycle, nil
	}
	return Value{}, 0, ErrBusy
}

// Value answers the value of a handle in a Snapshot of all counters; a value
// that was not sampled by then is absent. ErrGone: the counter was removed
// since, so that its slot cannot be told from another's. ErrBusy: the slot was
// reused too often to tell; read it singly.
func (s *Snapshot) Value(h Handle) (Value, error) {
	defer runtime.KeepAlive(s)
	v := s.v
	if v == nil || int(h.Index) >= len(v.entries) {
		return Value{}, ErrGone
	}
	e := &v.entries[h.Index]
	born := atomic.LoadUint64(&e.born)
	if !v.live(h) {
		return Value{}, ErrGone
	}
	var val Value
	var epoch uint64
	if n := v.counters(); h.Index >= n {
		if int(h.Index-n) >= len(s.records) {
			return Value{}, nil
		}
		r := &s.records[h.Index-n]
		val, epoch = r.value, r.epoch
	} else {
		if int(h.Index/BlockLen) >= len(s.blocks) {
			return Value{}, nil
		}
		c, row := &s.blocks[h.Index/BlockLen], h.Index%BlockLen
		if c.live&(1<<row) == 0 {
			return Value{}, nil
		}
		val, epoch = c.values[row], c.epoch
	}
	switch {
	case epoch >= epochMax:
		return Value{}, ErrBusy
	case epoch < born:
		return Value{}, nil // added after the snapshot was taken
	}
	return val, nil
}

func (l *Label) add(cycle uint64, oldest, newest int64) {
	l.MinCycle, l.MaxCycle = min(l.MinCycle, cycle), max(l.MaxCycle, cycle)
	l.Oldest, l.Newest = min(l.Oldest, oldest), max(l.Newest, newest)
	l.Sampled++
}

func (l *Label) finish() {
	if l.Sampled == 0 {
		*l = Label{}
		return
	}
	l.SkewNanos = l.Newest - l.Oldest
	if l.SameCycle = l.MinCycle == l.MaxCycle; l.SameCycle {
		l.Cycle = l.MinCycle
	}
}
