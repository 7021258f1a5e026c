package shm

import (
	"runtime"
	"sync/atomic"
)

// Counter reads one counter. It remembers where its value stood when it was
// last read, so it belongs to one goroutine at a time; a copy of it is another
// Counter. Made by Reader.Counter; the zero Counter must not be used.
//
// Load is the hot path: it allocates nothing, calls nothing while the writer is
// between two publishes, and is inlined on amd64.
type Counter struct {
	cur  *Value  // the value in the copy that was current under last
	seq  *uint64 // the sequence word of the block or record
	last uint64  // what it was then; 0: unknown, which no published word is with epoch 0

	slots    [2]*Value
	identity *uint64
	handle   Handle
	mapping  *mapping // keeps the memory mapped
}

func (v *view) counter(h Handle, m *mapping) (Counter, error) {
	if int(h.Index) >= len(v.entries) {
		return Counter{}, ErrGone
	}
	c := Counter{
		seq:      v.seqOf(h.Index),
		slots:    v.slotsOf(h.Index),
		identity: &v.entries[h.Index].identity,
		handle:   h,
		mapping:  m,
	}
	c.cur = c.slots[0]
	_, err := c.load()
	return c, err
}

// Handle answers what the counter was made from.
func (c *Counter) Handle() Handle { return c.handle }

// load is Load when the block was published since, or a counter of it freed. It
// answers ErrGone when the handle's counter was removed, and ErrBusy when every
// one of many tries met a publish.
//
//go:noinline
func (c *Counter) load() (Value, error) {
	defer runtime.KeepAlive(c)
	for range maxTries {
		s := atomic.LoadUint64(c.seq)
		// The epoch tells whether a counter of the block was freed since. The
		// entry is looked at while the sequence word is s: RETIRED is stored
		// before the publish that raises the epoch, so LIVE here means that the
		// copy under s is not of a later user of the slot.
		if c.last == 0 || epochOf(s) != epochOf(c.last) {
			if atomic.LoadUint64(c.identity) != identity(entLive, c.handle.Generation) {
				c.last = 0
				return Value{}, ErrGone
			}
		}
		p := c.slots[s&1]
		v := loadValue(p)
		loadFence()
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
