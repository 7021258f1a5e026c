package flexio

import (
	"fmt"
	"math"
	"time"
)

// CollapsedOptions describe a collapsed completion queue.
type CollapsedOptions struct {
	// MaxRate is the largest number of indices that the device completes in a second:
	// packets or work requests at line rate, times the 64-byte blocks of each in a send
	// queue. [Collapsed.Horizon] follows from it. 0 means 200 million.
	MaxRate uint64
	// Depth of the queue in the unit of the index, at most 65535: no more can be
	// outstanding. 0 means 32768. Only [Collapsed.SampleUpTo] uses it.
	Depth uint32
}

// Collapsed counts the completions of a queue whose CQ was made with cc=1 and oi=1: every entry
// lands in the same 64 bytes, so an entry holds the last completed index, in 16 bits. Collapsed
// extends them to 64. Only Init writes to the memory. A Collapsed belongs to one goroutine at a
// time.
//
// The index is the index of the WQE: in a send queue of the last signalled one, in basic blocks of
// 64 bytes; in a cyclic receive queue of the packet. A shared or linked receive queue completes out
// of order and cannot be counted like this.
type Collapsed struct {
	entry   []byte
	opts    CollapsedOptions
	count   Count
	sampled bool          // by Sample
	at      time.Duration // on the clock, just before the entry of the last Sample was read
}

// Count is the number of completions of a collapsed queue.
type Count struct {
	// Completed is the number of completed indices, errors included.
	Completed uint64
	// Ambiguous says that between two samples there was time for 65,536 completions or
	// more, so that Completed may be too low by a multiple of that. It is never reset.
	Ambiguous bool
	// Errors is the number of samples that found a new completion in error. The device
	// overwrites an error with the next completion: there may have been more.
	Errors uint64
	// Last is the newest of these errors, nil without errors.
	Last *CompletionError
}

// NewCollapsed counts the completions of a queue by its entry, 64 bytes at a multiple of 64.
// Anything else, and a depth that 16 bits do not tell, is ErrRing.
func NewCollapsed(entry []byte, o CollapsedOptions) (*Collapsed, error) {
	if len(entry) != 64 || !aligned(entry) {
		return nil, fmt.Errorf("%w: a collapsed queue is one entry of 64 bytes, aligned to as many", ErrRing)
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

// Init writes the initial content of the entry: the index before 0 (as DPDK's vDPA event queue
// does). It is called before the queue is made.
func (c *Collapsed) Init() {
	clear(c.entry)
	c.entry[60], c.entry[61] = 0xff, 0xff
}

// Horizon is the longest time between two samples for which Sample is exact.
func (c *Collapsed) Horizon() time.Duration {
	return time.Duration(uint64(1<<16-1) * uint64(time.Second) / c.opts.MaxRate)
}

// Sample adds the completions since the last sample. It is exact as long as samples are less than
// [Collapsed.Horizon] apart by clock, which is monotonic. After a longer gap the count is ambiguous.
// The gap is taken at its longest: from before the last entry was read until after this one.
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

// SampleUpTo adds the completions since the last sample, with the help of the producer index: the
// number of posted indices, in the unit of the device's index. It is exact however long ago the last
// sample was, because the device cannot be further behind than the queue is deep.
//
// posted is called before the entry is read and after it: a completion in between was posted before
// the second call. If more was posted between the two calls than 16 bits can hold, SampleUpTo reads
// again. If that happens each time, it returns the count of the sample before.
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
			// Fewer posted than before, more outstanding than the queue holds, or fewer
			// completed than before: the producer index is not of this queue.
			c.count.Ambiguous = true
			return c.count
		}
		c.advance(upper-behind, failed)
		break
	}
	return c.count
}

// sampleTries bounds the reads of SampleUpTo, which must not wait for a producer to pause.
const sampleTries = 64

// advance takes a new total, and the error if the entry that told it reports one.
func (c *Collapsed) advance(total uint64, failed *CompletionError) {
	if total != c.count.Completed && failed != nil {
		c.count.Errors++
		c.count.Last = failed
	}
	c.count.Completed = total
}

// readEntry reads the entry: see readStable.
func (c *Collapsed) readEntry() (index uint16, failed *CompletionError) {
	last := func() uint32 { return loadLast(c.entry) }
	syndromes := func() uint32 { return loadSyndromes(c.entry) }
	return readStable(last, syndromes)
}

// readStable takes the index in one access with the opcode, and the syndromes of an error
// between two such accesses that agree (a device writes an entry as one line). If the device
// overwrites the entry each time, the error has no syndrome.
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
