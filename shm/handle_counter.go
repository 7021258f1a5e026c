package shm

import (
	"runtime"
	"sync/atomic"
)

// HandleCounter reads the counter of one handle in one file. It caches the place of the current value, so use it from one
// goroutine at a time; a copy has a cache of its own. Reader.Counter makes one. The zero HandleCounter must not be used.
//
// Load is the hot path. It allocates nothing and makes no call unless the writer has published since the last Load. On
// amd64 the compiler inlines it.
type HandleCounter struct {
	cur  *Value  // the value in the copy that was current under last
	seq  *uint64 // the sequence word of the block or record
	last uint64  // the sequence word at the last read; 0: unknown (no published word is 0)

	slots    [2]*Value // the two places of the value, by the parity of the sequence word
	identity *uint64   // of the entry
	handle   Handle
	v        *view // keeps the memory mapped
}

func (v *view) counter(h Handle) (HandleCounter, error) {
	p, err := v.place(h.Index)
	if err != nil {
		return HandleCounter{}, err
	}
	c := HandleCounter{
		seq:      p.seq(),
		slots:    p.values(),
		identity: &p.entry().identity,
		handle:   h,
		v:        v,
	}
	c.cur = c.slots[0]

	_, err = c.load()
	return c, err
}

// Handle returns the handle that the counter was made from.
func (c *HandleCounter) Handle() Handle { return c.handle }

// load is the slow form of Load, for a sequence word that has moved: the block was published, one of its
// counters was freed, or the file was given up, which moves every sequence word too. ErrStale: the file was
// given up. ErrGone: the handle's counter was removed. ErrBusy: each of maxTries tries met a publish.
//
//go:noinline
func (c *HandleCounter) load() (Value, error) {
	defer runtime.KeepAlive(c)
	for range maxTries {
		s := atomic.LoadUint64(c.seq) // barrier read-acquire

		// The mark is loaded behind the sequence word. Giving a file up stores the mark first, then moves the words:
		// a reader that sees a moved word sees the mark too.
		if err := c.v.stale(); err != nil {
			c.last = 0
			return Value{}, err
		}

		// A new epoch says that a counter of the block was freed since the last read. The entry is loaded while the
		// sequence word is s. RETIRED is stored before the publish that raises the epoch, so LIVE here means that the
		// copy under s is not of a later user of the slot. (barrier identity-acquire, idle: read-fence orders the load
		// too.)
		if c.last == 0 || epochOf(s) != epochOf(c.last) {
			if atomic.LoadUint64(c.identity) != identity(entLive, c.handle.Generation) {
				c.last = 0
				return Value{}, ErrGone
			}
		}

		p := c.slots[s&1]
		v := loadValue(p)
		loadFence() // barrier read-fence
		if atomic.LoadUint64(c.seq) != s {
			continue
		}

		c.cur, c.last = p, s
		if epochOf(s) == epochMax {
			c.last = 0 // a saturated epoch no longer rises: compare the identity each time
		}
		return v, nil
	}
	return Value{}, ErrBusy
}
