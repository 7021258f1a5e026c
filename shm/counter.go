package shm

import (
	"runtime"
	"sync/atomic"
)

// Counter reads one counter. It remembers where its value stood when it was last read, so it belongs to one goroutine
// at a time; a copy of it is another Counter. Made by Reader.Counter; the zero Counter must not be used.
//
// Load is the hot path: it allocates nothing, calls nothing while the writer is
// between two publishes, and is inlined on amd64.
type Counter struct {
	cur  *Value  // the value in the copy that was current under last
	seq  *uint64 // the sequence word of the block or record
	last uint64  // seq at that time; 0: unknown (no published word is 0)

	slots    [2]*Value
	identity *uint64
	handle   Handle
	v        *view // keeps the memory mapped
}

func (v *view) counter(h Handle) (Counter, error) {
	p, err := v.place(h.Index)
	if err != nil {
		return Counter{}, err
	}
	c := Counter{seq: p.seq(), slots: p.values(), identity: &p.entry().identity, handle: h, v: v}
	c.cur = c.slots[0]
	_, err = c.load()
	return c, err
}

// Handle returns the handle that the counter was made from.
func (c *Counter) Handle() Handle { return c.handle }

// load is Load when the block was published since, or a counter of it freed, or the file given up: that moves every
// sequence word too. It returns ErrStale when the file was given up, ErrGone when the handle's counter was removed, and
// ErrBusy when every one of many tries met a publish.
//
//go:noinline
func (c *Counter) load() (Value, error) {
	defer runtime.KeepAlive(c)
	for range maxTries {
		s := atomic.LoadUint64(c.seq) // barrier read-acquire
		// Behind the sequence word: a word that was moved by giving the file up comes
		// with the mark, which was stored before.
		if err := c.v.stale(); err != nil {
			c.last = 0
			return Value{}, err
		}
		// The epoch tells whether a counter of the block was freed since. The entry is looked at while the sequence
		// word is s: RETIRED is stored before the publish that raises the epoch, so LIVE here means that the copy under
		// s is not of a later user of the slot. (barrier identity-acquire, idle: read-fence orders the load too.)
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
			c.last = 0 // saturated: it no longer tells
		}
		return v, nil
	}
	return Value{}, ErrBusy
}
