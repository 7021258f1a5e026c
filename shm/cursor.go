package shm

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// Record is one entry of the history: the value of a counter at one time.
type Record struct {
	Position uint64 // number of the record in the history, from 1
	Handle   Handle
	Value    Value
	Cycle    uint64
	Kind     uint32 // 0: a sample; skip other kinds
}

// Cursor reads the history in order. Use a Cursor from one goroutine at a time.
type Cursor struct {
	path string
	v    *view
	at   uint64 // position of the last record returned or lost
	lost uint64 // see Lost
}

// History returns a cursor that starts with the next record to be written. Call Rewind to start with the oldest record
// in the ring.
func (r *Reader) History() (*Cursor, error) {
	c := &Cursor{path: r.path, v: r.v}
	err := r.guard(func() error {
		c.at = atomic.LoadUint64(&r.v.hdr.historyTail)
		return nil
	})
	return c, err
}

// Rewind moves the cursor to the oldest record in the ring.
func (c *Cursor) Rewind() {
	_ = Guard(func() error {
		intent := atomic.LoadUint64(&c.v.hdr.historyIntent)
		c.at = intent - min(intent, uint64(len(c.v.history)))
		return nil
	})
	runtime.KeepAlive(c)
}

// Lost returns how many records the writer overwrote before this cursor read them.
func (c *Cursor) Lost() uint64 { return c.lost }

// Next copies the next records into dst, at most len(dst), and returns their number; 0 means that there is nothing new.
// lost is how many records were overwritten just before the first of them. All records returned and all records lost
// are together exactly the records written.
func (c *Cursor) Next(dst []Record) (n int, lost uint64, err error) {
	if len(dst) == 0 {
		return 0, 0, nil
	}
	err = Guard(func() (err error) {
		if n, lost, err = c.next(dst); err == nil && n == 0 {
			err = c.v.stale() // nothing will follow
		}
		return err
	})
	runtime.KeepAlive(c)
	c.lost += lost
	if err != nil {
		return n, lost, fmt.Errorf("%s: reading history: %w", c.path, err)
	}
	return n, lost, nil
}

func (c *Cursor) next(dst []Record) (n int, lost uint64, err error) {
	size := uint64(len(c.v.history))
	if size == 0 {
		return 0, 0, nil
	}

	// Give up after maxTries: a fast writer may overwrite the next record during every try. We return the records that we
	// have copied so far, and the next call reports the loss.
	h := c.v.hdr
	for range maxTries {
		tail := atomic.LoadUint64(&h.historyTail) // barrier tail-acquire
		if tail == c.at {
			return n, lost, nil
		}
		intent := atomic.LoadUint64(&h.historyIntent) // barrier intent-acquire

		// The tail never falls, and a tail loaded with acquire is not ahead of an intent loaded after it: the writer
		// stores intent n before tail n. If we find anything else, the file is not a mirror.
		//
		// The cursor too must not get ahead of the tail. On arm64 we may see intent n and still tail n-2 in the next
		// try, because the writer has no fence between tail n-1 and intent n. But a ring has at least two records, so
		// intent n moves the cursor to n-2 at most.
		if tail < c.at || intent < tail {
			return n, lost, fmt.Errorf("tail %d and intent %d after record %d: %w", tail, intent, c.at, ErrFormat)
		}

		if skip := c.behind(intent, size); skip > 0 {
			if n > 0 {
				return n, lost, nil
			}
			c.at += skip
			lost += skip
			continue
		}

		for c.at < tail && n < len(dst) {
			src := &c.v.history[c.at&(size-1)]
			var rec historyMem
			copyWords(wordsAt(&rec), wordsAt(src))
			loadFence() // barrier history-read-fence: the record before the second look at the intent
			if c.behind(atomic.LoadUint64(&h.historyIntent), size) > 0 {
				break // the writer may have begun to overwrite the record during the copy
			}
			if rec.position != c.at+1 {
				return n, lost, fmt.Errorf("record %d says that it is %d: %w", c.at+1, rec.position, ErrFormat)
			}

			c.at++
			dst[n] = Record{
				Position: rec.position,
				Handle:   Handle{Index: rec.index, Generation: rec.generation},
				Value:    Value{Packets: rec.packets, Bytes: rec.bytes, SampledAt: rec.time},
				Cycle:    rec.cycle,
				Kind:     rec.kind,
			}
			n++
		}
		if n == len(dst) || c.at == tail {
			return n, lost, nil
		}
	}
	return n, lost, nil
}

// behind returns how many records after c.at are lost once the writer has announced record intent: that one overwrites record
// intent - size.
func (c *Cursor) behind(intent, size uint64) uint64 {
	if intent <= size || intent-size <= c.at {
		return 0
	}
	return intent - size - c.at
}
