package flexio

import (
	"fmt"
	"time"
)

// RingCounter counts the completions of a program's own completion queue, where the device writes them, into words that
// another program reads: add is words.Words.Add of shm/words, or the like. The thread that polls the queue runs it, or a thread of its
// own if it is the ring's only consumer. It belongs to one goroutine at a time.
//
// Beside ibv_poll_cq the ring must be uncompressed, because each consumer of a compressed ring writes into it, and Count is
// called with the number of polled completions, at least once in a round of the queue.
type RingCounter struct {
	ring   *Ring
	add    func(completions, errors uint64)
	only   func(*CQE64) bool
	entry  CQE64
	polled uint32
	beside bool
}

// NewRingCounter counts the entries of ring from its consumer index on. only chooses the completions that count, by
// queue pair or opcode; nil: all.
func NewRingCounter(ring *Ring, add func(completions, errors uint64), only func(*CQE64) bool) *RingCounter {
	return &RingCounter{ring: ring, add: add, only: only, polled: ring.Consumed()}
}

// Count counts the entries that the device has written since the last call, and returns their number. polled is the
// number of completions that ibv_poll_cq has returned since then; -1: nothing else consumes the ring, whose owner writes
// [Ring.Consumed] to the doorbell record. An error that satisfies errors.Is(err, ErrCorrupt) says that polled entries were
// written over before Count saw them: the words are too low by their number.
func (c *RingCounter) Count(polled int) (int, error) {
	if polled >= 0 {
		c.polled, c.beside = c.polled+uint32(polled), true
	}
	var done, failed uint64
	n := 0
	for {
		found, err := c.ring.Next(&c.entry)
		if err != nil || !found {
			c.add(done, failed)
			if missed := int32(c.polled - c.ring.Consumed()); err == nil && c.beside && missed > 0 {
				err = fmt.Errorf("%d polled completions were not seen in the ring: %w", missed, ErrCorrupt)
			}
			return n, err
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

// CollapsedCounter is a RingCounter of a collapsed queue.
type CollapsedCounter struct {
	queue *Collapsed
	add   func(completions, errors uint64)
	last  Count
}

// NewCollapsedCounter counts the completions of queue from now on.
func NewCollapsedCounter(queue *Collapsed, add func(completions, errors uint64)) *CollapsedCounter {
	return &CollapsedCounter{queue: queue, add: add}
}

// Count is Collapsed.Sample, whose result it adds to the words.
func (c *CollapsedCounter) Count(clock func() time.Duration) Count {
	return c.take(c.queue.Sample(clock))
}

// CountUpTo is Collapsed.SampleUpTo, whose result it adds to the words.
func (c *CollapsedCounter) CountUpTo(posted func() uint64) Count {
	return c.take(c.queue.SampleUpTo(posted))
}

func (c *CollapsedCounter) take(now Count) Count {
	errors := now.Errors - c.last.Errors
	c.add(now.Completed-c.last.Completed-errors, errors)
	c.last = now
	return now
}
