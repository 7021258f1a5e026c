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

// ReaderOptions configure a Reader. The zero value is usable.
type ReaderOptions struct {
	// Owners are the ids of further users, besides root and the reader's own, whose numbers the reader trusts.
	Owners []uint32
	// AnyOwner trusts every owner. Set it to check a file, not to use its numbers.
	AnyOwner bool
}

// Reader reads one mirror file. Any goroutine may call its methods. After Close lookups return ErrClosed, but counters
// and snapshots stay readable.
type Reader struct {
	path    string
	id      fileID // of the opened file
	options ReaderOptions
	v       *view

	closed     atomic.Bool
	superseded atomic.Bool // the Instance reads the next file by now, so waits end with ErrStale

	mu            sync.RWMutex
	handleByName  map[string]Handle         // as of the last scan of the catalogue
	scanned       uint64                    // catalogueChanges before that scan, plus one; 0: no scan yet
	device        *deviceFile               // the device segment opened last
	live          *liveFile                 // the live map received last
	wordsByNumber map[uint64]*words.Mapping // the words files received

	page readerPage // for Wait
}

// OpenReader maps the mirror at path read-only. The Reader keeps reading this file even if another one gets the name;
// use OpenPath to follow the name. An error that satisfies ErrNotReady or fs.ErrNotExist means that no writer has made
// the mirror yet.
func OpenReader(path string, options ...ReaderOptions) (*Reader, error) {
	o := optional(options)
	v, id, err := openView(path, o)
	if err != nil {
		return nil, err
	}
	return &Reader{path: path, id: id, options: o, v: v}, nil
}

// optional returns the options of a variadic call, or the zero value.
func optional(options []ReaderOptions) ReaderOptions {
	if len(options) == 0 {
		return ReaderOptions{}
	}
	return options[0]
}

// Path returns the name under which the file was opened.
func (r *Reader) Path() string { return r.path }

// Close ends lookups and waits. The memory stays mapped until nothing refers to it, so a counter in use by another
// goroutine keeps reading and never faults. Idempotent.
func (r *Reader) Close() error {
	r.closed.Store(true)
	return r.v.close()
}

// guard calls fn under Guard if the reader is open, and keeps the memory mapped meanwhile.
func (r *Reader) guard(fn func() error) error {
	defer runtime.KeepAlive(r)
	if r.closed.Load() {
		return ErrClosed
	}
	return Guard(fn)
}

// Lookup returns the handle of the live counter of that name. ErrBusy: an Exchange is swapping counters, perhaps
// this one too. Try again.
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
	h, known := r.handleByName[name]
	upToDate := r.scanned == changes+1
	r.mu.RUnlock()

	if known {
		// A live counter never changes its name.
		if p, err := r.v.place(h.Index); err == nil && p.live(h) {
			return h, nil
		}
	}

	// If the table is up to date and lacks the name, a scan would not find it either. Only during an Exchange it
	// might, because the counter may be between its old slot and its new one.
	hopeless := !known && upToDate && changes&swapping == 0
	if !hopeless {
		var s scans
		for s.next(r.v) {
			handles, err := r.scan(s.changes)
			if err != nil {
				return Handle{}, err
			}
			if h, ok := handles[name]; ok {
				return h, nil
			}
		}
		if s.exhausted() && r.v.status(Now()).Alive {
			return Handle{}, fmt.Errorf("counters are exchanged meanwhile: %w", ErrBusy)
		}
	}
	return Handle{}, fmt.Errorf("%w: check the name (flowtally get lists all counters)", ErrNotFound)
}

// scan builds the table of handles. changes must be catalogueChanges from before the scan: if an entry changes during
// the scan, the next lookup finds another number there, and scans again.
func (r *Reader) scan(changes uint64) (map[string]Handle, error) {
	handles := make(map[string]Handle)
	var scratch entryMem
	err := r.v.eachUsed(func(i uint32, p place) {
		if id, _, err := p.entry().read(&scratch); err == nil {
			handles[getString(scratch.name[:])] = Handle{Index: i, Generation: uint32(id)}
		}
	})
	if err != nil {
		return nil, err
	}

	r.mu.Lock()
	r.handleByName, r.scanned = handles, changes+1
	r.mu.Unlock()
	return handles, nil
}

// Entries lists the live counters in the order of their indices.
//
// While a Writer.Exchange swaps counters, Entries waits and scans again, up to 64 times, to find each continuing
// counter exactly once. If the swap lasts longer, for example because the writer was killed in it, Entries still
// lists no counter twice, but may miss counters of the exchange. Find, Lookup and EntryWatcher behave likewise.
func (r *Reader) Entries() ([]Entry, error) {
	var out []Entry
	err := r.guard(func() (err error) {
		if out, err = r.v.entries(nil); err != nil {
			return err
		}
		return r.v.stale()
	})
	if err != nil {
		return nil, fmt.Errorf("%s: listing counters: %w", r.path, err)
	}
	return out, nil
}

// Entry describes the counter of a handle. ErrGone: the counter was removed. Entry then still returns the entry as it
// was at the removal, unless another counter has got the slot; e.Name is empty in that case.
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

// Counter returns the counter of a handle, for reading it often. ErrGone: it was removed.
func (r *Reader) Counter(h Handle) (c HandleCounter, err error) {
	err = r.guard(func() error {
		c, err = r.v.counter(h)
		return err
	})
	return c, err
}
