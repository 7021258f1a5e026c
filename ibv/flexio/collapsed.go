package flexio

import (
	"fmt"
	"math"
	"time"
)

// CollapsedOptions describe a collapsed completion queue.
type CollapsedOptions struct {
	// MaxRate is the largest number of indices completed by the device in a second: packets or work
	// requests at line rate, in a send queue times the 64-byte blocks of each. It determines
	// [Collapsed.Horizon]. 0 means 200 million.
	MaxRate uint64

	// Depth is the depth of the queue, in the unit of the index: the largest number of outstanding
	// indices. It is at most 65535, and 0 means 32768. Only [Collapsed.SampleUpTo] uses it.
	Depth uint32
}

// Collapsed counts the completions of a queue with a collapsed CQ, made with cc=1 and oi=1. The device
// writes every entry to the same 64 bytes, so they contain the last completed index, in 16 bits.
// Collapsed extends the index to 64 bits. Only Init writes to the memory. Only one goroutine at a time
// may use a Collapsed.
//
// The index is that of a WQE. In a send queue it is that of the last signalled WQE, in basic blocks of
// 64 bytes. In a cyclic receive queue it counts packets. A shared or linked receive queue completes out
// of order, so Collapsed cannot count it.
type Collapsed struct {
	entry   []byte
	opts    CollapsedOptions
	count   Count
	sampled bool          // Sample was called
	at      time.Duration // clock just before the last Sample has read the entry
}

// Count is the number of completions of a collapsed queue.
type Count struct {
	// Completed is the number of completed indices, including those in error.
	Completed uint64

	// Ambiguous is set once there was time for 65,536 or more completions between two samples. Then
	// Completed may be too low by a multiple of 65,536. It is never reset.
	Ambiguous bool

	// Errors is the number of samples with a new completion in error. The next completion overwrites
	// an error, so there may have been more errors.
	Errors uint64

	// Last is the newest of these errors, or nil.
	Last *CompletionError
}

// NewCollapsed returns a Collapsed for the entry of a queue: 64 bytes at a multiple of 64. For any other
// memory, and for a depth of more than 16 bits, it returns ErrRing.
func NewCollapsed(entry []byte, o CollapsedOptions) (*Collapsed, error) {
	if len(entry) != 64 || !aligned(entry) {
		return nil, fmt.Errorf("%w: a collapsed queue is one entry of 64 bytes, at a multiple of 64", ErrRing)
	}
	if o.MaxRate == 0 {
		o.MaxRate = 200e6
	}
	if o.Depth == 0 {
		o.Depth = 1 << 15
	}
	if o.Depth > 1<<16-1 {
		return nil, fmt.Errorf("%w: a queue of %d: 16 bits tell at most 65535 outstanding", ErrRing, o.Depth)
	}
	return &Collapsed{entry: entry, opts: o}, nil
}

// Init writes the initial content of the entry: the index before 0. DPDK's vDPA event queue does the
// same. Call it before making the queue.
func (c *Collapsed) Init() {
	clear(c.entry)
	c.entry[60], c.entry[61] = 0xff, 0xff
}

// Horizon returns the longest time between two samples for which Sample is exact.
func (c *Collapsed) Horizon() time.Duration {
	return time.Duration(uint64(1<<16-1) * uint64(time.Second) / c.opts.MaxRate)
}

// Sample adds the completions since the last sample. It is exact as long as samples are less than
// [Collapsed.Horizon] apart by clock, which must be monotonic. After a longer gap the count is ambiguous.
// To be safe, we take the longest possible gap: from before the previous read of the entry until after
// this one.
func (c *Collapsed) Sample(clock func() time.Duration) Count {
	before := clock()
	index, failed := c.readEntry()
	if c.sampled && clock()-c.at > c.Horizon() {
		c.count.Ambiguous = true
	}
	c.sampled = true
	c.at = before

	fresh := index + 1 - uint16(c.count.Completed) // mod 2^16
	c.advance(c.count.Completed+uint64(fresh), failed)
	return c.count
}

// SampleUpTo adds the completions since the last sample. posted returns the producer index: the number of
// posted indices, in the unit of the device's index. The device cannot be further behind than the depth of
// the queue, so SampleUpTo is exact however long ago the last sample was.
//
// SampleUpTo calls posted before and after reading the entry, because completions in between were posted
// before the second call. If the producer posts more than 16 bits can tell between the two calls, it reads
// again. If this happens each time, it returns the previous count.
func (c *Collapsed) SampleUpTo(posted func() uint64) Count {
	lower := posted()
	for range sampleTries {
		index, failed := c.readEntry()
		upper := posted()

		// When the entry was read, the device was behind upper by this much at most.
		most := upper - lower + uint64(c.opts.Depth)
		if upper > lower && most > math.MaxUint16 {
			lower = upper
			continue
		}

		behind := uint64(uint16(upper) - (index + 1))
		if upper < lower || behind > most || behind > upper || upper-behind < c.count.Completed {
			// Fewer posted than before, more outstanding than the depth, or fewer completed than
			// before: this producer index must belong to another queue.
			c.count.Ambiguous = true
			return c.count
		}
		c.advance(upper-behind, failed)
		break
	}
	return c.count
}

// sampleTries limits the reads of SampleUpTo. It must not wait until a fast producer pauses.
const sampleTries = 64

// advance sets a new total. failed is the error in the entry, or nil.
func (c *Collapsed) advance(total uint64, failed *CompletionError) {
	if total != c.count.Completed && failed != nil {
		c.count.Errors++
		c.count.Last = failed
	}
	c.count.Completed = total
}

// readEntry reads the index and the error of the entry. The device may write at the same time.
func (c *Collapsed) readEntry() (index uint16, failed *CompletionError) {
	last := func() uint32 { return loadLast(c.entry) }
	syndromes := func() uint32 { return loadSyndromes(c.entry) }
	return readStable(last, syndromes)
}

// readStable loads index and opcode in one access. For an error it also needs the syndromes, which are in
// another word. It loads them between two equal values of the first word: a device writes an entry as one
// line, so they then belong together. If the device overwrites the entry each time, the error has no
// syndrome.
func readStable(last, syndromes func() uint32) (index uint16, failed *CompletionError) {
	for range 4 {
		word := last()
		index = uint16(word >> 16)
		op := OpOwn(word).Opcode()
		if !op.IsError() {
			return index, nil
		}

		s := syndromes()
		failed = &CompletionError{Opcode: op}
		if last() == word {
			failed.HW = uint8(s >> 24)
			failed.Vendor = uint8(s >> 8)
			failed.Syndrome = Syndrome(s)
			return index, failed
		}
	}
	return index, failed
}
