package rdma

import (
	"fmt"
	"sync"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// slotPool is a bulk with the owners of its slots, and its place in the reader's queue.
type slotPool struct {
	bulk

	mu      sync.Mutex // held during a command
	members []slot
	fresh   int            // slots from here on were never used
	freed   []int          // the other free slots, the one that was freed first in front
	raw     []backend.Pair // scratch of a command
	asked   int64          // when the last successful command began; 0 before the first

	roomy bool // in device.roomy; guarded by Backend.mu

	queueEntry // guarded by reader.mu
}

// slot is one hardware counter. Without an owner it is free.
type slot struct {
	owner *slotSample
	count slotCount
	freed int64 // when its last rule was gone, see take
}

func newPool(b bulk) *slotPool {
	n := b.slots()
	return &slotPool{bulk: b, members: make([]slot, n), raw: make([]backend.Pair, n)}
}

// sample reads all slots with one command and stores the samples. It stores the time before the command, so a sample is never
// older than it says.
func (b *slotPool) sample(now func() int64) (resets int, err error) {
	return b.sampleBy(b.query, now)
}

// sampleFinal is sample when rules are gone.
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

// take gives a free slot to a flow. A used slot can only be taken after the pool was read again: its last rule may have counted
// packets late, and then they are in the baseline of the next flow.
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

// full reports whether every slot has an owner.
func (b *slotPool) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fresh == len(b.members) && len(b.freed) == 0
}

// setBaseline makes the present values of the hardware counters the baselines of slots, with one command. The reader may have
// sampled the slots since take. setBaseline drops these samples, because they have the counts of earlier flows.
func (b *slotPool) setBaseline(slots []int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.query(b.raw); err != nil {
		return fmt.Errorf("reading counters before their first rule: %w", err)
	}
	for _, i := range slots {
		s := &b.members[i]
		s.count.start(b.raw[i])
		s.owner.Store(backend.Pair{}, 0)
		s.owner.resets.Store(0)
	}
	return nil
}

// free ends the use of a slot. The owner's last sample stays.
func (b *slotPool) free(i int, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.members[i] = slot{freed: now}
	b.freed = append(b.freed, i)
}

// empty reports whether no slot has an owner.
func (b *slotPool) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.freed) == b.fresh
}
