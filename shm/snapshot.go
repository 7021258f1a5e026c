package shm

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// Label says of which cycles and times the values of a Snapshot are.
type Label struct {
	// SameCycle is true if every value was published in the poll cycle Cycle. Values that were never sampled do not count.
	SameCycle bool
	Cycle     uint64 // 0 unless SameCycle

	MinCycle, MaxCycle uint64
	Oldest, Newest     int64 // smallest and largest sampled-at
	SkewNanos          int64 // Newest - Oldest
	Sampled            int   // blocks and single values that the label covers
}

// Snapshot holds the values of many counters, copied at one time. The zero value is usable. Reuse a Snapshot: only the first
// filling allocates, and the first one after the mirror has grown. Use it from one goroutine at a time.
type Snapshot struct {
	Label
	// List holds the values that Reader.SnapshotOf was asked for, in the order of its handles; nil after Reader.Snapshot.
	List []Value
	// Gone counts the handles of List whose counters were removed.
	Gone int

	v        *view
	segments []segmentCopy
	scratch  scratch
}

// segmentCopy is a copy of one segment. Either blocks or records is empty.
type segmentCopy struct {
	blocks  []copyMem
	records []recordCopy
}

type recordCopy struct {
	value Value
	epoch uint64
}

// Snapshot copies all counters into dst. During cycle k + 1 it still copies the values of cycle k, if the writer publishes
// every block once in a cycle. ErrBusy: the writer published too fast, and dst is empty.
func (r *Reader) Snapshot(dst *Snapshot) error {
	return r.snapshot(dst, func() error { return r.v.snapshot(dst) })
}

// SnapshotOf copies the counters of hs into dst.List. The value of a removed counter is absent, and dst.Gone counts it.
func (r *Reader) SnapshotOf(dst *Snapshot, hs []Handle) error {
	return r.snapshot(dst, func() error { return r.v.snapshotOf(dst, hs) })
}

func (r *Reader) snapshot(dst *Snapshot, fill func() error) error {
	dst.Label = Label{MinCycle: ^uint64(0), Oldest: 1<<63 - 1} // each value lowers these two
	dst.Gone = 0
	dst.List = dst.List[:0]
	dst.v = r.v
	dst.segments = dst.segments[:0]

	err := r.guard(func() error {
		if err := fill(); err != nil {
			return err
		}
		return r.v.stale()
	})
	if err != nil {
		dst.segments = dst.segments[:0]
		dst.List = dst.List[:0]
		dst.Label = Label{}
		return fmt.Errorf("%s: taking a snapshot: %w", r.path, err)
	}
	dst.Label.finish()
	return nil
}

func (v *view) snapshot(dst *Snapshot) error {
	// Load the cycle first, the number of segments afterwards. Otherwise the mirror could grow in between, and the snapshot
	// would lack counters that were published in cycle k.
	k := atomic.LoadUint64(&v.hdr.cycleDone) // barrier cycle-acquire
	list, err := v.segments()
	if err != nil {
		return err
	}

	large := v.large(list)
	for n, s := range list {
		// Reuse the memory from the last time dst was filled.
		if n < cap(dst.segments) {
			dst.segments = dst.segments[:n+1]
		} else {
			dst.segments = append(dst.segments, segmentCopy{})
		}

		c, high := &dst.segments[n], v.high(n)
		if s.kind == kindRecords {
			c.blocks, c.records = c.blocks[:0], resize(c.records, int(high), SegmentLen)
			err = v.copyRecords(c.records, s, &dst.Label)
		} else {
			c.records, c.blocks = c.records[:0], resize(c.blocks, int(blocksUsed(high)), segmentBlocks)

			// A large snapshot prefetches the sequence words of the next segment: see copyBlocks.
			next := (*segment)(nil)
			if large {
				next = s
				if n+1 < len(list) && list[n+1].kind == kindBlocks {
					next = list[n+1]
				}
			}
			err = v.copyBlocks(c.blocks, &dst.scratch, s, k, next, &dst.Label)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resize returns a slice of n elements, in the memory of s if that is enough. A new one gets the capacity most.
func resize[T any](s []T, n, most int) []T {
	if cap(s) < n {
		return make([]T, n, most)
	}
	return s[:n]
}

func (v *view) snapshotOf(dst *Snapshot, hs []Handle) error {
	if cap(dst.List) < len(hs) {
		dst.List = make([]Value, len(hs))
	}
	dst.List = dst.List[:len(hs)]

	k := atomic.LoadUint64(&v.hdr.cycleDone) // barrier cycle-acquire
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
			dst.Label.add(cycle, val.SampledAt, val.SampledAt, 1)
		}
	}
	return nil
}

// valueAt reads one counter for a snapshot of cycle k. cycle is the one in which the value was published.
func (v *view) valueAt(h Handle, k uint64) (val Value, cycle uint64, err error) {
	p, err := v.place(h.Index)
	if err != nil {
		return Value{}, 0, err
	}
	if p.latency() {
		return v.recordAt(h, p)
	}

	b, row := p.block(), h.Index%BlockLen
	born := atomic.LoadUint64(&p.entry().born)
	for range maxTries {
		s := atomic.LoadUint64(b.seq()) // barrier read-acquire
		if !p.live(h) {
			return Value{}, 0, ErrGone
		}

		chosen := b.pick(s, k)
		c := b.copy(chosen.parity)
		val, cycle = loadValue(&c.values[row]), atomic.LoadUint64(&c.cycle)
		epoch := atomic.LoadUint64(&c.epoch)
		loadFence() // barrier read-fence
		if !chosen.unchanged(b) {
			continue
		}
		if chosen.byIntent && (epoch < born || epoch == epochMax) {
			k = ^uint64(0) // the earlier copy may be of the slot's last counter: take the current one
			continue
		}
		return val, cycle, nil
	}
	return Value{}, 0, ErrBusy
}

// recordAt is valueAt for a latency counter.
func (v *view) recordAt(h Handle, p place) (val Value, cycle uint64, err error) {
	r := p.record()
	for range maxTries {
		s := atomic.LoadUint64(&r.seq)
		if !p.live(h) {
			return Value{}, 0, ErrGone
		}
		s2, cycle, ok := v.recordOut(r, &val)
		if ok && s2 == s {
			return val, cycle, nil
		}
	}
	return Value{}, 0, ErrBusy
}

// Value returns the value of a handle in a Snapshot of all counters. If the counter was not sampled yet, the value is absent.
// ErrGone: the counter was removed since the snapshot, which cannot tell any more whose value is in the slot. ErrBusy: the
// slot was reused too often to tell; read the counter by itself.
func (s *Snapshot) Value(h Handle) (val Value, err error) {
	if s.v == nil {
		return Value{}, ErrGone
	}
	err = Guard(func() error {
		val, err = s.value(h)
		return err
	})
	runtime.KeepAlive(s)
	return val, err
}

func (s *Snapshot) value(h Handle) (Value, error) {
	p, err := s.v.place(h.Index)
	if err != nil {
		return Value{}, err
	}
	born := atomic.LoadUint64(&p.entry().born)
	if !p.live(h) {
		return Value{}, ErrGone
	}
	if int(h.Index/SegmentLen) >= len(s.segments) {
		return Value{}, nil // the mirror has grown since, so the counter is newer than the snapshot
	}

	var val Value
	var epoch uint64 // of the block or record, at the snapshot
	c, n := &s.segments[h.Index/SegmentLen], int(p.n)
	switch {
	case n < len(c.records):
		val, epoch = c.records[n].value, c.records[n].epoch
	case n/BlockLen < len(c.blocks):
		b, row := &c.blocks[n/BlockLen], n%BlockLen
		if b.live&(1<<row) == 0 {
			return Value{}, nil
		}
		val, epoch = b.values[row], b.epoch
	default:
		return Value{}, nil // the slot was never used before the snapshot
	}

	switch {
	case epoch >= epochMax:
		return Value{}, ErrBusy
	case epoch < born:
		return Value{}, nil // added after the snapshot was taken
	}
	return val, nil
}

// add extends the label to n further blocks or single values of one cycle.
func (l *Label) add(cycle uint64, oldest, newest int64, n int) {
	l.MinCycle, l.MaxCycle = min(l.MinCycle, cycle), max(l.MaxCycle, cycle)
	l.Oldest, l.Newest = min(l.Oldest, oldest), max(l.Newest, newest)
	l.Sampled += n
}

// finish computes the fields that depend on all values.
func (l *Label) finish() {
	if l.Sampled == 0 {
		*l = Label{}
		return
	}
	l.SkewNanos = l.Newest - l.Oldest
	l.SameCycle = l.MinCycle == l.MaxCycle
	if l.SameCycle {
		l.Cycle = l.MinCycle
	}
}
