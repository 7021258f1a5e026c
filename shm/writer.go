package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/internal/space"
)

// Writer owns a mirror. Control methods may be called from any goroutine; they
// wait for the end of a cycle. See the package comment for the publishing ones.
type Writer struct {
	path     string
	mode     fs.FileMode // of the files beside it
	lock     *os.File    // holds the flock; nil over a heap region
	v        *view
	coolDown time.Duration
	// words of the header that describe this writer
	generation, takeovers uint64
	started, startedWall  int64
	heartbeat             time.Duration
	limits                [2]uint32 // by class
	log                   *slog.Logger
	reserve               space.Reserve // nil: fallocate
	hook
	made    bool // Create made the file, and took none over
	madeDir bool // and the directory

	// growing is held while a segment is made, which holds mu at its end only.
	growing sync.Mutex

	// mu is held from BeginCycle to EndCycle and by every control method. It guards everything below, and v.
	mu      sync.Mutex
	closed  bool
	inCycle bool // also read without mu by the goroutine between BeginCycle and EndCycle
	state   State
	// pollPeriod is the time between two cycles that the header tells.
	pollPeriod time.Duration
	tables
	scratch    entryMem
	device     *DeviceSegment // nil: none was asked for
	lastDevice map[Handle][2]uint64
	waker      *waker // nil: there is no page of waiters
	sampled    int    // how often sampleEntries has looked
	faulted    bool   // an access to the mapped file faulted; Remake clears it
}

// tables hold the writer's knowledge of the mirror that is not in the file. adopt makes them from the catalogue.
type tables struct {
	cycle uint64
	names map[string]uint32
	live  []uint64    // a bit for each index: it belongs to a counter
	spent uint32      // the highest generation that a handle has had
	free  [2]freeList // block counters, records
}

// Path is the file's name.
func (w *Writer) Path() string { return w.path }

// Generation is the random number in the header that names this writer.
func (w *Writer) Generation() uint64 { return w.generation }

// control calls fn, which touches the mirror, as a control method: cycles wait. ErrTruncated: the file
// was cut short (Remake). The changes that fn had made by then are in the old file alone, or the
// entries that Remake is given undo them.
func (w *Writer) control(fn func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	return w.guard(fn)
}

// guard is Guard, and Intact knows of a fault. It is called with mu held.
func (w *Writer) guard(fn func() error) error {
	err := Guard(fn)
	if errors.Is(err, ErrTruncated) {
		w.faulted = true
	}
	return err
}

// Entries lists the live counters in the order of their indices. A writer that took over goes on with them.
func (w *Writer) Entries() (es []Entry) {
	_ = w.control(func() (err error) { es, err = w.v.entries(nil); return err }) // all segments are mapped
	return es
}

// Last returns the value that was published last for h.
func (w *Writer) Last(h Handle) (v Value, err error) {
	err = w.control(func() error {
		p, err := w.place(h)
		if err == nil {
			v = *p.values()[*p.seq()&1]
		}
		return err
	})
	return v, err
}

// place returns the place of a live handle.
func (w *Writer) place(h Handle) (place, error) {
	if w.closed {
		return place{}, ErrClosed
	}
	p, err := w.v.place(h.Index)
	if err != nil || !p.live(h) {
		return place{}, fmt.Errorf("%s: counter %d generation %d: %w", w.path, h.Index, h.Generation, ErrGone)
	}
	return p, nil
}

// entry returns the entry of a live handle.
func (w *Writer) entry(h Handle) (*entryMem, error) {
	p, err := w.place(h)
	if err != nil {
		return nil, err
	}
	return p.entry(), nil
}

// onEntry calls fn, as control does, with the entry of a live handle.
func (w *Writer) onEntry(h Handle, fn func(*entryMem) error) error {
	return w.control(func() error {
		ent, err := w.entry(h)
		if err == nil {
			err = fn(ent)
		}
		return err
	})
}

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

// SetSource names the source of the counter from now on.
func (w *Writer) SetSource(h Handle, source, basis string) error {
	return w.update(h, func(s *slotMem) error { return s.setSource(source, basis) })
}

// SetFlags stores how far the counter's value can be trusted.
func (w *Writer) SetFlags(h Handle, valid, stale, ambiguous bool) error {
	return w.update(h, func(s *slotMem) error { s.setFlags(valid, stale, ambiguous); return nil })
}

// SetContinuity stores the base from which the next writer goes on with the total.
func (w *Writer) SetContinuity(h Handle, c Continuity) error {
	return w.update(h, func(s *slotMem) error { s.setContinuity(c); return nil })
}

// update changes the two-slot part of an entry: whole or not at all.
func (w *Writer) update(h Handle, change func(*slotMem) error) error {
	return w.onEntry(h, func(ent *entryMem) error {
		s := ent.slots[ent.seq&1]
		if err := change(&s); err != nil {
			return fmt.Errorf("%s: changing counter %q: %w", w.path, getString(ent.name[:]), err)
		}
		if s != ent.slots[ent.seq&1] {
			w.putSlot(ent, &s)
		}
		return nil
	})
}

// putSlot makes s the current slot of ent.
func (w *Writer) putSlot(ent *entryMem, s *slotMem) {
	next := ent.seq + 1
	w.step("update-begin")
	storeFence() // barrier publish-fence
	copyWords(wordsAt(&ent.slots[next&1]), wordsAt(s))
	w.step("update-filled")
	publish64(&ent.seq, next) // barrier publish-release
	w.step("update-done")
	w.changed()
}

// SetState tells readers the writer's state. Close sets Halt by itself; Run comes with the first cycle.
func (w *Writer) SetState(s State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.state = s
	_ = Guard(func() error { atomic.StoreUint32(&w.v.hdr.state, uint32(s)); return nil })
	w.waker.serve(w.generation)
}

// SetPollPeriod tells readers the time from one cycle to the next, from now on. 0 means that cycles follow each
// other without a pause, or at no fixed time; it is the value at first. A writer stores a longer period before the
// pause that is longer.
func (w *Writer) SetPollPeriod(period time.Duration) error {
	return w.control(func() error {
		w.pollPeriod = max(period, 0)
		atomic.StoreInt64(&w.v.hdr.pollPeriod, int64(w.pollPeriod))
		return nil
	})
}

// WokenAt returns the time, on the clock of Now, at which a cycle woke a process that waited; 0: none has.
func (w *Writer) WokenAt() int64 {
	if w.waker == nil {
		return 0
	}
	return w.waker.wokenAt.Load()
}

// SetLimits changes the limits of Options.Counters and Options.LatencyCounters. A mirror that holds more keeps them.
func (w *Writer) SetLimits(counters, latency int) error {
	if err := (&Options{Counters: counters, LatencyCounters: latency}).valid(); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("%s: %w", w.path, ErrClosed)
	}
	w.limits = [2]uint32{uint32(counters), uint32(latency)} // -1 is noneAllowed
	return Guard(func() error { w.introduceLimits(w.v.hdr); return nil })
}

// Close ends the writer in good order: state Halt (a Fail stays), values
// readable. It waits for the end of a cycle. Idempotent.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if w.state == Boot || w.state == Run {
		w.state = Halt
	}
	_ = Guard(func() error { // a file that was cut short has no readers to tell
		w.beat(Now())
		atomic.StoreUint32(&w.v.hdr.state, uint32(w.state))
		return nil
	})
	w.waker.serve(w.generation)
	w.step("close-halted")
	err := w.v.close()
	if w.lock == nil {
		return err
	}
	return errors.Join(err, w.lock.Close()) // and with it the flock
}

// Discard is Close for a writer that is given up before it was of use: it also removes a
// mirror that Create made, with the files beside it, and the directory if Create made
// that too. A mirror that was taken over stays. Idempotent; after Close it does nothing.
func (w *Writer) Discard() error {
	w.mu.Lock()
	made := w.made && !w.closed
	w.mu.Unlock()
	var errs []error
	if made {
		for _, path := range Files(w.path) { // the lock, which is held, among them
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	errs = append(errs, w.Close())
	if made && w.madeDir {
		_ = os.Remove(filepath.Dir(w.path)) // unless another mirror is there by now
	}
	return errors.Join(errs...)
}
