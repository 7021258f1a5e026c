package rdma

import (
	"fmt"
	"sync"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// slotPool is a bank with its occupants and its place in the reader's queue.
type slotPool struct {
	bulk

	mu      sync.Mutex // held while a command is under way
	members []slot
	fresh   int   // slots from here on were never in use
	freed   []int // slots that were, the one that was freed first before the others
	raw     []backend.Pair
	asked   int64 // when the last command that succeeded was issued; 0: none has

	roomy bool // in device.roomy

	queueEntry // the reader's
}

// slot is one hardware counter. A free one has no cell.
type slot struct {
	owner *slotSample
	count slotCount
	freed int64 // when its last rule had gone
}

func newPool(b bulk) *slotPool {
	n := b.slots()
	return &slotPool{bulk: b, members: make([]slot, n), raw: make([]backend.Pair, n)}
}

// sample issues one command and stores what it answers. Values are those of a moment
// after the command was issued, which is the time they are given: the age that is shown is never
// younger than the truth.
func (b *slotPool) sample(now func() int64) (resets int, err error) {
	return b.sampleBy(b.query, now)
}

// sampleFinal is sample after rules have gone.
func (b *slotPool) sampleFinal(now func() int64) error {
	_, err := b.sampleBy(b.queryFinal, now)
	return err
}

func (b *slotPool) sampleBy(read func([]backend.Pair) error, now func() int64) (resets int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := now()
	if err := read(b.raw); err != nil {
		return 0, err
	}
	b.asked = at
	for i := range b.members {
		s := &b.members[i]
		if s.owner == nil {
			continue
		}
		total, reset := s.count.total(b.raw[i])
		if reset {
			s.owner.resets.Add(1)
			resets++
		}
		s.owner.Store(total, at)
	}
	return resets, nil
}

// take gives a free slot to a cell. One that was in use is free again once the bank was
// read after its rules had gone: what was counted late is in the baseline then.
func (b *slotPool) take(c *slotSample) (i int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.freed) > 0 && b.members[b.freed[0]].freed < b.asked:
		i, b.freed = b.freed[0], b.freed[1:]
	case b.fresh < len(b.members):
		i = b.fresh
		b.fresh++
	default:
		return 0, false
	}
	b.members[i].owner = c
	return i, true
}

// full says that every slot has a cell.
func (b *slotPool) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fresh == len(b.members) && len(b.freed) == 0
}

// setBaseline makes what the hardware shows now the baseline of the slots named. It is one command.
func (b *slotPool) setBaseline(slots []int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.query(b.raw); err != nil {
		return fmt.Errorf("reading counters before their first rule: %w", err)
	}
	for _, i := range slots {
		b.members[i].count.start(b.raw[i])
	}
	return nil
}

// free takes a slot from its cell, which keeps its last sample.
func (b *slotPool) free(i int, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.members[i] = slot{freed: now}
	b.freed = append(b.freed, i)
}

// empty says that nobody counts here.
func (b *slotPool) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.freed) == b.fresh
}
