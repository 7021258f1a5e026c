package shm

import (
	"runtime"
	"sync/atomic"
)

// HandleCounter reads the counter of one handle in one file. It keeps the last value that it read, so use it from one
// goroutine at a time; a copy keeps a value of its own. Reader.Counter makes one. The zero HandleCounter must not be used.
//
// Load is the hot path. It allocates nothing and makes no call unless the writer has published since the last Load.
// The compiler inlines it.
type HandleCounter struct {
	seq   *uint64 // the sequence word of the block or record
	last  uint64  // the sequence word that value was read under; 0: take the slow way (no published word is 0)
	value Value   // the last value read

	slots    [2]*Value // the value in each of the two copies; the low bit of the sequence word selects one
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

	_, err = c.load()
	return c, err
}

// Handle returns the handle that the counter was made from.
func (c *HandleCounter) Handle() Handle { return c.handle }

// Load returns the counter's value: packets, bytes and sampled-at of one instant. ErrGone: the counter was removed.
// ErrStale: the mirror was given up. ErrBusy: try again.
//
// If the sequence word still is c.last, the writer has published nothing since load read c.value under that word, and
// has freed no counter of the block. So c.value is the current value, and Load need not read it from the mirror again.
// The sequence word is the only shared word here. All others belong to this goroutine, so no CPU needs a fence.
//
// The odd shape of the body keeps it within the compiler's budget for inlining: 75 of 80, which TestLoadInlines checks.
func (c *HandleCounter) Load() (v Value, err error) {
	if v = c.value; atomic.LoadUint64(c.seq) != c.last {
		v, err = c.load()
	}
	return
}

// load is the slow form of Load, for a sequence word that has moved: the writer has published the block, freed
// one of its counters, or given the file up, which moves every sequence word. ErrStale: the writer gave the
// file up. ErrGone: it removed the counter. ErrBusy: it published during each of maxTries tries.
//
//go:noinline
func (c *HandleCounter) load() (Value, error) {
	defer runtime.KeepAlive(c)
	for range maxTries {
		s := atomic.LoadUint64(c.seq) // barrier read-acquire

		// The writer gives a file up by storing the mark first, and then moving the words, each with release. We load in
		// the other order, the word with acquire: if we saw a moved word, we see the mark too.
		if err := c.v.stale(); err != nil {
			c.last = 0
			return Value{}, err
		}

		// A new epoch means that a counter of the block was freed since the last read, perhaps ours. The writer stores
		// RETIRED before it publishes the sequence word of the new epoch with release. We have loaded that word with
		// acquire, so if our counter was the one, we load RETIRED here or something later. LIVE of our generation
		// proves that the copy under s does not yet belong to the slot's next counter. This must hold for the s that we
		// return the value under, so each try compares again. (barrier identity-acquire, idle: read-fence orders this
		// load before the second look at the sequence word.)
		if c.last == 0 || epochOf(s) != epochOf(c.last) {
			if atomic.LoadUint64(c.identity) != identity(entLive, c.handle.Generation) {
				c.last = 0
				return Value{}, ErrGone
			}
		}

		v := loadValue(c.slots[s&1])
		loadFence() // barrier read-fence: the three words before the second look at the sequence word
		if atomic.LoadUint64(c.seq) != s {
			continue
		}

		c.last = s
		c.value = v
		if epochOf(s) == epochMax {
			c.last = 0 // a saturated epoch no longer tells of freed counters: compare the identity each time
		}
		return v, nil
	}
	return Value{}, ErrBusy
}
