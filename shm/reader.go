package shm

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/flowtally/flowtally/shm/words"
)

// ReaderOptions shape a Reader. The zero value is usable.
type ReaderOptions struct {
	// Owners are user ids, beside root and the reader's own, whose files are trusted to hold true numbers.
	Owners []uint32
	// AnyOwner trusts every owner: for checking a file, not for using it.
	AnyOwner bool
}

// Reader reads a mirror. Its methods may be called from any goroutine. After Close lookups return
// ErrClosed. Counters and snapshots stay readable.
type Reader struct {
	path    string
	id      fileID // of the file that was opened
	options ReaderOptions
	v       *view
	closed  atomic.Bool
	left    atomic.Bool // an Instance has left this file for the next: waits end with ErrStale

	mu      sync.RWMutex
	names   map[string]Handle         // by the last scan of the catalogue
	namesAt uint64                    // catalogueChanges before that scan, plus one; 0: never scanned
	device  *deviceFile               // the segment that was opened last
	live    *liveFile                 // the map that was handed out last
	apart   map[uint64]*words.Mapping // words files that were handed out, by number

	page readerPage // for Wait
}

// OpenReader maps the mirror at path read-only, and stays with this file when another one takes its name. An error
// that satisfies ErrNotReady or fs.ErrNotExist means that there is no writer yet.
func OpenReader(path string, options ...ReaderOptions) (*Reader, error) {
	o := optional(options)
	v, id, err := openView(path, o)
	if err != nil {
		return nil, err
	}
	return &Reader{path: path, id: id, options: o, v: v}, nil
}

// optional returns the options of a call that may have none.
func optional(options []ReaderOptions) ReaderOptions {
	if len(options) == 0 {
		return ReaderOptions{}
	}
	return options[0]
}

// Path is the file's name when it was opened.
func (r *Reader) Path() string { return r.path }

// Close ends lookups and waits. The memory stays mapped until nothing refers to it: a
// Counter in use elsewhere goes on reading, and never faults. Idempotent.
func (r *Reader) Close() error {
	r.closed.Store(true)
	return r.v.close()
}

// guard is Guard for an open reader, whose memory stays mapped meanwhile.
func (r *Reader) guard(fn func() error) error {
	defer runtime.KeepAlive(r)
	if r.closed.Load() {
		return ErrClosed
	}
	return Guard(fn)
}

// Lookup returns the handle of the live counter of that name. ErrBusy: an Exchange that may have it goes on: try again.
func (r *Reader) Lookup(name string) (h Handle, err error) {
	err = r.guard(func() error {
		h, err = r.lookup(name)
		return cmp.Or(r.v.stale(), err)
	})
	if err != nil {
		return Handle{}, fmt.Errorf("%s: looking up %q: %w", r.path, name, err)
	}
	return h, nil
}

func (r *Reader) lookup(name string) (Handle, error) {
	changes := atomic.LoadUint64(&r.v.hdr.catalogueChanges) // barrier changes-acquire
	r.mu.RLock()
	h, ok := r.names[name]
	lacks := !ok && r.namesAt == changes+1 && changes&swapping == 0 // the table is complete without the name
	r.mu.RUnlock()
	if ok {
		if p, err := r.v.place(h.Index); err == nil && p.live(h) {
			return h, nil // a live counter never changes its name
		}
	}
	l := looks{}
	for !lacks && l.again(r.v) {
		names, err := r.scan(l.word)
		if h, ok = names[name]; ok || err != nil {
			return h, err
		}
	}
	if l.n > maxTries && r.v.status(Now()).Alive {
		return Handle{}, fmt.Errorf("counters are exchanged meanwhile: %w", ErrBusy)
	}
	return Handle{}, fmt.Errorf("%w: check the name (flowtally get lists all counters)", ErrNotFound)
}

// scan renews the table of names. changes was loaded before, so a change made during the scan leads to another one.
func (r *Reader) scan(changes uint64) (map[string]Handle, error) {
	names := make(map[string]Handle)
	var scratch entryMem
	err := r.v.eachUsed(func(i uint32, p place) {
		if id, _, err := p.entry().read(&scratch); err == nil {
			names[getString(scratch.name[:])] = Handle{Index: i, Generation: uint32(id)}
		}
	})
	if err == nil {
		r.mu.Lock()
		r.names, r.namesAt = names, changes+1
		r.mu.Unlock()
	}
	return names, err
}

// Entries lists the live counters in the order of their indices. While a Writer.Exchange swaps counters Entries waits and
// looks again, 64 times at most, so that it finds each counter that goes on once. After that, as beside a writer that was
// killed or stopped in the swap, the list has no counter twice but may miss counters of the exchange. So it is with Find,
// Lookup and Catalogue.
func (r *Reader) Entries() ([]Entry, error) {
	var out []Entry
	err := r.guard(func() (err error) {
		if out, err = r.v.entries(nil); err == nil {
			err = r.v.stale()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: listing counters: %w", r.path, err)
	}
	return out, nil
}

// Entry describes the counter of a handle. ErrGone means that the counter was removed: the entry is then as it was
// when that happened, or, where the slot has served another counter since, has no Name.
func (r *Reader) Entry(h Handle) (e Entry, err error) {
	err = r.guard(func() error {
		p, err := r.v.place(h.Index)
		if err != nil {
			return err
		}
		scratch := new(entryMem)
		id, slot, err := p.entry().readUsed(scratch)
		if err == nil && uint32(id) == h.Generation {
			e = p.decode(h.Index, scratch, id, slot)
		}
		if err == nil && id != identity(entLive, h.Generation) {
			err = ErrGone
		}
		return errors.Join(r.v.stale(), err)
	})
	if err != nil && !errors.Is(err, ErrGone) {
		return Entry{}, err
	}
	return e, err
}

// Counter prepares reading the counter of a handle. ErrGone: it was removed.
func (r *Reader) Counter(h Handle) (c Counter, err error) {
	err = r.guard(func() error { c, err = r.v.counter(h); return err })
	return c, err
}
