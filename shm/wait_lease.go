package shm

import (
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
)

// waitPath is the page through which waiters tell the writer of path that they
// are there: a time, the lease, until which it wakes them.
func waitPath(path string) string { return beside(path, "wait") }

// Of the page: the lease is its first word, the rest is zero.
const (
	waitLength = 4096
	waitLease  = 0 // i64, on the clock of Now
)

// lease is the page as the writer sees it, who maps it read-only. Waiters may
// write anything to it, and make it shorter or longer: what they say is bounded by
// leaseLength, a page that is gone is taken for a lease that never ends, and its
// length is set back (keep).
type lease struct {
	path string
	file *os.File
	m    *mapping
	word *int64
	log  *slog.Logger

	seen  int64 // what the page said last
	until int64 // wake until then
	lost  bool  // a load found no page, and keep has not found it whole since

	// See keep.
	blocks  int64      // st_blocks of the whole page
	keptAt  int64      // when its length was looked at last
	told    bool       // that it was changed
	mending sync.Mutex // held while it is set back, in another goroutine
}

func newLease(path string, f *os.File, blocks int64, m *mapping, log *slog.Logger) *lease {
	return &lease{path: path, file: f, blocks: blocks, m: m, word: &overlay[int64](m.b, waitLease, 1)[0], log: log, keptAt: Now()}
}

// ahead tells whether somebody may be asleep. A lease is believed once, when it
// changes, and for leaseLength at most: one far ahead runs out as well, and one
// that is set back takes nothing from those who had raised it. One that is read
// while it is written may be a mixture, and is bounded all the same; its waiter has
// yet to compare the word.
func (l *lease) ahead(now int64) bool {
	if l.lost {
		return true
	}
	var says int64
	err := Guard(func() error {
		says = atomic.LoadInt64(l.word)
		return nil
	})
	if err != nil {
		l.lost = true
		return true
	}
	if says != l.seen {
		l.seen = says
		l.until = max(l.until, min(says, now+leaseLength))
	}
	return now < l.until
}

// wakeWaiters ends a cycle for those who sleep until one ends. Without waiters
// it costs an atomic store and a load of a line that nobody writes, and one fstat(2)
// a second.
//
// The store of the word and the load of the lease must not change places (the
// other half of sleeper.sleep). sync/atomic is sequentially consistent: on amd64
// the store is an XCHG, a full fence; on arm64 it is STLR and the load LDAR, which
// is never performed before an earlier STLR.
func (w *Writer) wakeWaiters(now int64) {
	if w.lease == nil {
		return
	}
	h := w.v.hdr
	if generation := atomic.LoadUint64(&h.generation); h.waitGeneration != generation {
		// Of this writer, in this file, the first. Who sleeps has an older one's.
		atomic.StoreUint64(&h.waitGeneration, generation)
		w.v.wakeAll()
		return
	}
	atomic.StoreUint32(&h.waitWord, h.waitWord+1)
	w.step("wake-word")
	if w.lease.ahead(now) {
		futexWake(&h.waitWord)
	}
	w.keepLease(now) // behind the wake, which is not to wait for it
}

// keepLease looks after the page of waiters, once in a while.
func (w *Writer) keepLease(now int64) {
	if w.lease != nil && w.lease.due(now) {
		w.step("wait-kept")
		w.lease.keep(now)
	}
}

// wakeAll wakes whoever sleeps, lease or none: at the end of a writer or of a file.
func (v *view) wakeAll() {
	atomic.AddUint32(&v.hdr.waitWord, 1)
	futexWake(&v.hdr.waitWord)
}
