package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// errNoSlot: no slot of the class is free, but the mirror may grow.
var errNoSlot = errors.New("no free slot")

// Reserve grows the mirror until that many slots are free. Call it before Exchange if you hold up poll cycles during the Exchange:
// Reserve itself holds up none. It returns ErrFull if there is no room.
func (w *Writer) Reserve(counters int, latency bool) error {
	class := classOf(latency)
	for {
		free := 0
		err := w.control(func() error {
			free = w.free[class].count(w.coolDown, Now())
			return nil
		})
		if err != nil || free >= counters {
			return err
		}
		if err := w.grow(class, counters); err != nil {
			return fmt.Errorf("%s: making room for %d counters: %w", w.path, counters, err)
		}
	}
}

// growOrRefuse is grow for one counter. If it fails, it counts the refusal in the header.
func (w *Writer) growOrRefuse(class int) error {
	err := w.grow(class, 1)
	if err != nil {
		_ = w.control(func() error {
			atomic.AddUint64(&w.v.hdr.refused, 1)
			return nil
		})
	}
	return err
}

// grow adds a segment for counters of a class, unless that many slots are free by now. After an error the mirror is as
// it was.
//
// grow makes the file longer and maps the new segment, with all its pages, while cycles go on. They wait only while it
// stores the descriptor and the number of segments. If the writer is killed before that, the file is longer than its
// header says, and the next writer cuts it.
func (w *Writer) grow(class, counters int) error {
	w.growing.Lock()
	defer w.growing.Unlock()

	var n uint32
	needed := false
	err := w.control(func() error {
		f := &w.free[class]
		n = uint32(len(*w.v.list.Load()))
		needed = f.count(w.coolDown, Now()) < counters
		if needed && n == maxSegments {
			return fmt.Errorf("all %d slots of the format are in use%s: %w", MaxCounters, f.coolingText(w.coolDown, Now()), ErrFull)
		}
		return nil
	})
	if err != nil || !needed {
		return err
	}

	var s *segment
	err = Guard(func() (err error) {
		s, err = w.prepare(n, kindOf(class))
		return err
	})
	if err != nil {
		return w.refuse(class, err)
	}

	err = w.control(func() error {
		w.declare(n, s)
		return nil
	})
	if err != nil {
		return err
	}
	w.log.Debug("mirror has grown", "path", w.path, "segments", n+1)
	return nil
}

// prepare makes segment n. No reader looks at it before declare.
func (w *Writer) prepare(n, kind uint32) (*segment, error) {
	off := segmentOffset(w.v.fixed.history, n)
	w.step("grow-begin")
	if err := w.v.store.reserve(off, segmentSize); err != nil {
		return nil, err
	}
	w.step("grow-reserved")
	m, err := w.v.store.window(off, segmentSize)
	if err != nil {
		return nil, err
	}
	populate(m, 0, segmentSize)
	w.step("grow-mapped")
	return newSegment(kind, m), nil
}

// declare makes s segment n of the mirror. The stores to the file come first: if one of them faults, the writer's tables are
// unchanged.
func (w *Writer) declare(n uint32, s *segment) {
	d := &w.v.hdr.table[n]
	atomic.StoreUint32(&d.high, 0)
	atomic.StoreUint32(&d.kind, s.kind)
	w.step("grow-described")
	atomic.StoreUint32(&w.v.hdr.segments, n+1) // barrier segments-release: the length and the kind before the number

	list := *w.v.list.Load()
	longer := append(list[:len(list):len(list)], s)
	w.v.list.Store(&longer)
	w.live = append(w.live, make([]uint64, segmentBlocks)...)
	w.freeSegment(n, s.kind)
	w.step("grow-declared")
}

// freeSegment adds the never-used slots of segment n to the free list. Never-used slots of the segment before move to the
// front of the list, before those that cool down.
func (w *Writer) freeSegment(n, kind uint32) {
	f := &w.free[classOf(kind == kindRecords)]
	var left []cooling
	for ; f.next < f.end; f.next++ {
		left = append(left, cooling{index: f.next, freedAt: neverUsed})
	}
	f.cooling = append(left, f.cooling...)
	f.next = n*SegmentLen + w.v.high(int(n))
	f.end = (n + 1) * SegmentLen
}

// refuse returns the error for a counter of a class that finds no slot. err says why the mirror cannot grow.
func (w *Writer) refuse(class int, err error) error {
	text := ""
	_ = w.control(func() error {
		text = w.free[class].coolingText(w.coolDown, Now())
		return nil
	})
	if errors.Is(err, ErrTruncated) { // over a heap region, or a file that another process cut short
		err = fmt.Errorf("%w: %w", err, ErrFull)
	}
	return fmt.Errorf("all slots for %s are in use%s, and the mirror cannot grow: %w", nameOf(class), text, err)
}
