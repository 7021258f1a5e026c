package shm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// The two classes of counters.
const (
	classCounters = 0
	classRecords  = 1
)

func classOf(latency bool) int {
	if latency {
		return classRecords
	}
	return classCounters
}

// kindOf returns the kind of segment for counters of a class.
func kindOf(class int) uint32 { return [...]uint32{kindBlocks, kindRecords}[class] }

// nameOf returns the name of a class for errors.
func nameOf(class int) string { return [...]string{"counters", "latency counters"}[class] }

// freeList hands out the slots of one class: first those that have cooled down, in the order in which they were
// freed, then those of the class's last segment that were never used.
type freeList struct {
	cooling []cooling // the slot freed first comes first
	next    uint32    // the first slot that was never used
	end     uint32    // of the segment of next
}

// cooling is a freed slot, or one that was never used.
type cooling struct {
	index   uint32
	freedAt int64 // neverUsed: the slot need not cool down
}

// neverUsed is the freedAt of a slot that no counter has had. It must be long ago at any time. 0 would not do: the clock starts
// at boot, which may be less than a cool-down ago. It is half of the smallest number, so adding a cool-down does not overflow.
const neverUsed = math.MinInt64 / 2

// noneAllowed is how the header says a limit of -1.
const noneAllowed = math.MaxUint32

// limitOf returns a limit of the header in the form of Options.
func limitOf(word uint32) int {
	if word == noneAllowed {
		return -1
	}
	return int(word)
}

// full returns ErrFull if the limit of a class does not allow 1 + more further counters.
func (w *Writer) full(class, more int) error {
	h := w.v.hdr
	limit := [...]uint32{h.counterLimit, h.recordLimit}[class]
	used := [...]uint32{h.countersUsed, h.recordsUsed}[class]
	switch {
	case limit == noneAllowed:
		return fmt.Errorf("the writer was started without %s: %w", nameOf(class), ErrFull)
	case limit != 0 && uint64(used)+uint64(more) >= uint64(limit):
		return fmt.Errorf("all %d %s that the writer's limit allows are in use: remove some, or start it with a higher limit: %w",
			limit, nameOf(class), ErrFull)
	}
	return nil
}

// Room returns the error that Add would return for e after that number of further counters were added, as far as the limit
// goes. Like Add, it counts a refusal in the header.
func (w *Writer) Room(e Entry, further int) error {
	return w.control(func() error {
		err := w.full(classOf(e.Latency), further)
		if err == nil {
			return nil
		}
		atomic.AddUint64(&w.v.hdr.refused, 1)
		return fmt.Errorf("%s: adding counter %q: %w", w.path, e.Name, err)
	})
}

// take returns a free slot. errNoSlot: none is free, but the mirror may grow.
func (w *Writer) take(class int, now int64) (uint32, error) {
	if err := w.full(class, 0); err != nil {
		atomic.AddUint64(&w.v.hdr.refused, 1)
		return 0, err
	}
	return w.takeFree(class, now)
}

// takeFree is take without the limit of the class.
func (w *Writer) takeFree(class int, now int64) (uint32, error) {
	f := &w.free[class]
	if len(f.cooling) > 0 && now-f.cooling[0].freedAt >= int64(w.coolDown) {
		i := f.cooling[0].index
		f.cooling = f.cooling[1:]
		return i, nil
	}
	if f.next < f.end {
		f.next++
		return f.next - 1, nil
	}
	return 0, errNoSlot
}

// count returns the number of slots that can be used now.
func (f *freeList) count(coolDown time.Duration, now int64) int {
	cooled, _ := slices.BinarySearchFunc(f.cooling, now-int64(coolDown)+1, func(c cooling, until int64) int {
		return cmp.Compare(c.freedAt, until)
	})
	return cooled + int(f.end-f.next)
}

// coolingText returns the part of an error that says when a slot will be free.
func (f *freeList) coolingText(coolDown time.Duration, now int64) string {
	n := len(f.cooling)
	if n == 0 {
		return ""
	}
	wait := max(0, time.Duration(f.cooling[0].freedAt+int64(coolDown)-now))
	return fmt.Sprintf(" (%d slots cool down: the first is free in %v)", n, wait.Round(time.Millisecond))
}

// giveBack undoes take, for a slot that no counter has used since.
func (w *Writer) giveBack(i uint32, ent *entryMem) {
	f := w.freeOf(i)
	if i+1 == f.next && ent.identity == 0 {
		f.next--
		return
	}
	freedAt := ent.freedAt
	if ent.identity == 0 {
		freedAt = neverUsed
	}
	f.cooling = append([]cooling{{index: i, freedAt: freedAt}}, f.cooling...)
}

// release makes a retired slot cool down. A slot that has used up its generations is never used again: after a wrap-around an
// old handle would name the new counter.
func (w *Writer) release(i uint32, ent *entryMem, now int64) {
	if uint32(ent.identity) == math.MaxUint32 {
		return
	}
	f := w.freeOf(i)
	f.cooling = append(f.cooling, cooling{index: i, freedAt: now})
}

// freeOf returns the free list of the class of index i.
func (w *Writer) freeOf(i uint32) *freeList {
	return &w.free[classOf((*w.v.list.Load())[i/SegmentLen].kind == kindRecords)]
}

// spend notes the generation of a handle. It ignores the highest one, because that slot is never used again.
func (w *Writer) spend(generation uint32) {
	if generation != math.MaxUint32 {
		w.spent = max(w.spent, generation)
	}
}

func (w *Writer) setLive(i uint32, live bool) {
	if bit := uint64(1) << (i % BlockLen); live {
		w.live[i/BlockLen] |= bit
	} else {
		w.live[i/BlockLen] &^= bit
	}
}

func (w *Writer) isLive(i uint32) bool { return w.live[i/BlockLen]>>(i%BlockLen)&1 == 1 }

// raiseHigh makes readers look at index i. It must come before every store to the slot, for Check and for the next writer.
func (w *Writer) raiseHigh(i uint32) {
	if d := &w.v.hdr.table[i/SegmentLen]; i%SegmentLen >= d.high {
		atomic.StoreUint32(&d.high, i%SegmentLen+1)
	}
}

// countUsed adds by to the fill level of p's class in the header.
func (w *Writer) countUsed(p place, by int) {
	used := &w.v.hdr.countersUsed
	if p.latency() {
		used = &w.v.hdr.recordsUsed
	}
	atomic.StoreUint32(used, uint32(int(*used)+by))
}
