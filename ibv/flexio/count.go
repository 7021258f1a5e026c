package flexio

import (
	"errors"
	"fmt"
	"time"
)

// ErrMissed is returned if the device has overwritten polled entries of a ring before they were counted.
// Counting continues behind them.
var ErrMissed = errors.New("entries of the ring were missed")

// RingCounter counts the completions of a program's own completion queue in its ring, and adds them to
// words read by another program. For example, add may be words.Words.Add of shm/words. Run it in the
// thread that polls the queue, or in a thread of its own if nobody else consumes the ring. Only one
// goroutine at a time may use it.
//
// # Beside ibv_poll_cq
//
// Call Count with the number of polled completions at least once per round of the queue, because the
// device overwrites polled entries. If the ring is compressed, make it with RingOptions.Expand, and never
// poll more completions than Count has returned: ibv_poll_cq cannot read compressed entries.
//
// Poll all completions of a queue pair before destroying or resetting it. Otherwise ibv_poll_cq fails on a
// remaining entry, and may already have removed others without returning their number.
type RingCounter struct {
	ring   *Ring
	add    func(completions, errors uint64)
	only   func(*CQE64) bool
	entry  CQE64
	shared bool   // ibv_poll_cq consumes the ring, too
	polled uint32 // the consumer index of ibv_poll_cq, mod 2^32 like Ring.Consumed
	missed uint64
}

// NewRingCounter returns a counter of the entries of ring, starting at its consumer index. If only is not
// nil, just the completions for which it returns true count, for example those of one queue pair.
func NewRingCounter(ring *Ring, add func(completions, errors uint64), only func(*CQE64) bool) *RingCounter {
	return &RingCounter{ring: ring, add: add, only: only, polled: ring.Consumed()}
}

// Count counts the entries written by the device since the last call, and returns their number. polled is
// the number of completions returned by ibv_poll_cq since then. If nobody polls, pass -1, and write
// [Ring.Consumed] to the doorbell record.
//
// After ErrMissed the words are too low. Missed tells by how many. After ErrCorrupt the ring is unreadable, and
// each call returns the error again.
func (c *RingCounter) Count(polled int) (int, error) {
	if polled >= 0 {
		c.polled += uint32(polled)
		c.shared = true
	}

	// If we are more than a round behind, an overwritten entry may have the expected owner bit again. So
	// skip first.
	missed := c.skipPolled(1 << c.ring.log)

	var done, failed uint64
	n := 0
	for {
		found, err := c.ring.Next(&c.entry)
		if !found && missed == nil {
			// A polled entry must be in the ring. If it is not found, the device has overwritten it.
			missed = c.skipPolled(0)
			if missed != nil {
				continue
			}
		}
		if !found {
			c.add(done, failed)
			return n, errors.Join(missed, err)
		}

		n++
		switch {
		case c.only != nil && !c.only(&c.entry):
		case c.entry.OpOwn.Opcode().IsError():
			failed++
		default:
			done++
		}
	}
}

// skipPolled skips to the end of the polled completions if more than most of them are not counted yet.
func (c *RingCounter) skipPolled(most int32) error {
	behind := int32(c.polled - c.ring.Consumed())
	if !c.shared || behind <= most || c.ring.failed != nil {
		return nil
	}
	c.missed += uint64(behind)
	c.ring.skip(c.polled)
	return fmt.Errorf("%d polled completions were overwritten before they were counted: call Count more often: %w", behind, ErrMissed)
}

// Missed returns the number of polled completions that Count has missed so far.
func (c *RingCounter) Missed() uint64 { return c.missed }

// CollapsedCounter counts the completions of a collapsed queue, and adds them to words read by another
// program.
type CollapsedCounter struct {
	queue *Collapsed
	add   func(completions, errors uint64)
	last  Count
}

// NewCollapsedCounter returns a counter of the completions of queue after its last sample.
func NewCollapsedCounter(queue *Collapsed, add func(completions, errors uint64)) *CollapsedCounter {
	return &CollapsedCounter{queue: queue, add: add, last: queue.count}
}

// Count calls [Collapsed.Sample] and adds the new completions to the words.
func (c *CollapsedCounter) Count(clock func() time.Duration) Count {
	return c.addSince(c.queue.Sample(clock))
}

// CountUpTo calls [Collapsed.SampleUpTo] and adds the new completions to the words.
func (c *CollapsedCounter) CountUpTo(posted func() uint64) Count {
	return c.addSince(c.queue.SampleUpTo(posted))
}

// addSince adds the difference between now and the last count to the words.
func (c *CollapsedCounter) addSince(now Count) Count {
	errors := now.Errors - c.last.Errors
	c.add(now.Completed-c.last.Completed-errors, errors)
	c.last = now
	return now
}
