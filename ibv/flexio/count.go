package flexio

import (
	"errors"
	"fmt"
	"time"
)

// ErrMissed: polled entries of a ring were written over before they were counted. Counting goes on behind them.
var ErrMissed = errors.New("entries of the ring were missed")

// RingCounter counts the completions of a program's own completion queue, where the device writes
// them, into words that another program reads: add is words.Words.Add of shm/words, or the like. The
// thread that polls the queue runs it, or a thread of its own if it is the ring's only consumer. It
// belongs to one goroutine at a time.
//
// # Beside ibv_poll_cq
//
// Call Count with the number of polled completions, at least once in a round of the queue: the
// device overwrites what was polled. If the ring is compressed, make it with RingOptions.Expand, and
// poll no more completions than Count has returned, because ibv_poll_cq reads no compressed entries.
//
// Poll every completion of a queue pair before it is destroyed or reset: ibv_poll_cq fails on an
// entry that is left, and may have taken others off the ring without a number.
type RingCounter struct {
	ring   *Ring
	add    func(completions, errors uint64)
	only   func(*CQE64) bool
	entry  CQE64
	shared bool   // ibv_poll_cq consumes the ring, too
	polled uint32 // the consumer index of ibv_poll_cq, as Ring.Consumed counts
	missed uint64
}

// NewRingCounter counts the entries of ring from its consumer index on. only chooses the completions
// that count, by queue pair or opcode; nil: all.
func NewRingCounter(ring *Ring, add func(completions, errors uint64), only func(*CQE64) bool) *RingCounter {
	return &RingCounter{ring: ring, add: add, only: only, polled: ring.Consumed()}
}

// Count counts the entries that the device has written since the last call, and returns their
// number. polled is the number of completions that ibv_poll_cq has returned since then; -1: nothing
// else consumes the ring, whose owner writes [Ring.Consumed] to the doorbell record.
//
// With ErrMissed the words are too low by the number that Missed has grown by. After ErrCorrupt the
// ring cannot be read any more, and each call returns it again.
func (c *RingCounter) Count(polled int) (int, error) {
	if polled >= 0 {
		c.polled += uint32(polled)
		c.shared = true
	}

	// More than a round behind, the owner bit of an entry that was written over looks like the right
	// one again.
	missed := c.skipPolled(1 << c.ring.log)

	var done, failed uint64
	n := 0
	for {
		found, err := c.ring.Next(&c.entry)
		if !found && missed == nil {
			// A polled entry was written before, so one that is not found was written over.
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

// skipPolled goes on behind the polled completions if more than most of them were not counted.
func (c *RingCounter) skipPolled(most int32) error {
	behind := int32(c.polled - c.ring.Consumed())
	if !c.shared || behind <= most || c.ring.failed != nil {
		return nil
	}
	c.missed += uint64(behind)
	c.ring.skip(c.polled)
	return fmt.Errorf("%d polled completions were written over before they were counted: %w", behind, ErrMissed)
}

// Missed returns the number of polled completions that were not counted.
func (c *RingCounter) Missed() uint64 { return c.missed }

// CollapsedCounter counts the completions of a collapsed queue into words that another program
// reads, as RingCounter does.
type CollapsedCounter struct {
	queue *Collapsed
	add   func(completions, errors uint64)
	last  Count
}

// NewCollapsedCounter counts the completions of queue that its last sample does not have.
func NewCollapsedCounter(queue *Collapsed, add func(completions, errors uint64)) *CollapsedCounter {
	return &CollapsedCounter{queue: queue, add: add, last: queue.count}
}

// Count adds the result of [Collapsed.Sample] to the words.
func (c *CollapsedCounter) Count(clock func() time.Duration) Count {
	return c.addSince(c.queue.Sample(clock))
}

// CountUpTo adds the result of [Collapsed.SampleUpTo] to the words.
func (c *CollapsedCounter) CountUpTo(posted func() uint64) Count {
	return c.addSince(c.queue.SampleUpTo(posted))
}

// addSince adds to the words what now has beyond the count before.
func (c *CollapsedCounter) addSince(now Count) Count {
	errors := now.Errors - c.last.Errors
	c.add(now.Completed-c.last.Completed-errors, errors)
	c.last = now
	return now
}
