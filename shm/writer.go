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

// Writer owns a mirror. One goroutine runs the cycles: see the package comment. Any goroutine may call the other
// methods, which are called control methods. They wait for the end of a cycle.
type Writer struct {
	path     string
	mode     fs.FileMode // of the files beside the mirror
	lock     *os.File    // has the flock; nil over a heap region. To change it, hold growing and mu.
	v        *view
	coolDown time.Duration

	// The words of the header that describe this writer: see introduce.
	generation, takeovers uint64
	started, startedWall  int64
	heartbeat             time.Duration // from one heartbeat to the next
	limits                [2]uint32     // by class

	log     *slog.Logger
	reserve space.Reserve // nil: fallocate
	hook
	made    bool // Create made the file, instead of taking one over
	madeDir bool // Create made the directory too

	// growing is locked while the mirror grows or is made anew. Lock order: growing, then mu. That work locks mu only for
	// short steps, so that cycles do not wait for the rest.
	growing sync.Mutex

	// mu is locked from BeginCycle to EndCycle and by every control method. It guards v, limits and all fields
	// below.
	mu         sync.Mutex
	closed     bool
	inCycle    bool // the goroutine between BeginCycle and EndCycle reads it without mu
	state      State
	pollPeriod time.Duration // as in the header
	tables
	scratch    entryMem
	device     *DeviceSegment       // nil: nobody has asked for it
	lastDevice map[Handle][2]uint64 // see LastDevice
	waker      *waker               // nil: there is no page of waiters
	sample     sample
	faulted    bool // an access to the mapped file has faulted; Remake clears it
}

// sample is where sampleEntries ended.
type sample struct {
	block int   // checked last
	row   int   // of the blocks, modulo BlockLen: their first live counter from there is checked
	at    int64 // the time of the last call, as from Now
}

// tables hold what the writer needs to know about the mirror besides the file. adopt builds them from the catalogue.
type tables struct {
	cycle uint64
	names map[string]uint32 // index by name
	live  []uint64          // a bit for each index, set if it has a counter
	spent uint32            // the highest generation of any handle so far
	free  [2]freeList       // by class
}

// Path is the file's name.
func (w *Writer) Path() string { return w.path }

// Generation is the random number in the header that names this writer.
func (w *Writer) Generation() uint64 { return w.generation }

// control calls fn, which may access the mirror, between two cycles. ErrTruncated: the file was cut short, and the
// engine must call Remake. What fn changed before the fault does not matter then: Remake takes nothing from the old
// file, only the entries that it is given.
func (w *Writer) control(fn func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	return w.guard(fn)
}

// guard is Guard, and notes a fault for Intact, because only part of what fn stores may have reached the file: Remake must
// follow. Every access of an open writer to the mirror's file runs under guard, except those of a cycle: see AbandonCycle.
// The caller holds mu.
func (w *Writer) guard(fn func() error) error {
	err := Guard(fn)
	if errors.Is(err, ErrTruncated) {
		w.faulted = true
	}
	return err
}

// Entries lists the live counters in the order of their indices. Call it after a takeover to learn what to continue.
func (w *Writer) Entries() (es []Entry) {
	_ = w.control(func() (err error) { // only a fault is an error here, because a writer has all segments mapped
		es, err = w.v.entries(nil)
		return err
	})
	return es
}

// Last returns the value that was published last for h.
func (w *Writer) Last(h Handle) (v Value, err error) {
	err = w.control(func() error {
		p, err := w.place(h)
		if err != nil {
			return err
		}
		v = *p.values()[*p.seq()&1]
		return nil
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

// onEntry calls fn with the entry of a live handle, as a control method.
func (w *Writer) onEntry(h Handle, fn func(*entryMem) error) error {
	return w.control(func() error {
		ent, err := w.entry(h)
		if err != nil {
			return err
		}
		return fn(ent)
	})
}

// SetState publishes the writer's state. The first cycle sets Run, and Close sets Halt.
func (w *Writer) SetState(s State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.state = s
	_ = w.guard(func() error { // after a fault Remake tells the readers of the next file
		atomic.StoreUint32(&w.v.hdr.state, uint32(s))
		return nil
	})
	w.waker.serve(w.generation)
}

// SetPollPeriod tells readers the time from one cycle to the next. 0, the initial value, means cycles without pause, or
// at no fixed times. Before a writer polls at a longer period, it must call SetPollPeriod: readers would otherwise
// expect a cycle too early.
func (w *Writer) SetPollPeriod(period time.Duration) error {
	return w.control(func() error {
		w.pollPeriod = max(period, 0)
		atomic.StoreInt64(&w.v.hdr.pollPeriod, int64(w.pollPeriod))
		return nil
	})
}

// WokenAt returns when a cycle last woke a waiting process, on the clock of Now; 0 means never.
func (w *Writer) WokenAt() int64 {
	if w.waker == nil {
		return 0
	}
	return w.waker.wokenAt.Load()
}

// SetLimits changes Options.Counters and Options.LatencyCounters. A mirror with more counters than that keeps them.
func (w *Writer) SetLimits(counters, latency int) error {
	o := Options{Counters: counters, LatencyCounters: latency}
	if err := o.valid(); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("%s: %w", w.path, ErrClosed)
	}
	w.limits = [2]uint32{uint32(counters), uint32(latency)} // -1 is noneAllowed
	return w.guard(func() error {
		w.introduceLimits(w.v.hdr)
		return nil
	})
}

// Close ends the writer in good order. The state becomes Halt, unless it is Fail, and values stay readable. Close waits
// for the end of a cycle. Idempotent.
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
	return errors.Join(err, w.lock.Close()) // the flock ends with its descriptor
}

// Discard closes a writer whose start failed. It also removes a mirror made by Create, the files beside it, and the
// directory if Create made that. A mirror that Create took over stays. Idempotent; after Close it does nothing.
func (w *Writer) Discard() error {
	w.mu.Lock()
	remove := w.made && !w.closed
	w.mu.Unlock()

	var errs []error
	if remove {
		for _, path := range Files(w.path) { // including the lock, whose descriptor keeps it locked until Close
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	errs = append(errs, w.Close())
	if remove && w.madeDir {
		_ = os.Remove(filepath.Dir(w.path)) // fails if another mirror is there by now
	}
	return errors.Join(errs...)
}
