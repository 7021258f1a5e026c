package engine

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// relist exchanges the entries of flows that get another name, other labels, another class or a total that begins
// at 0. The old entries are gone then; values go to the new ones when enact has told the plan.
func (a *alterations) relist() error {
	e := a.e
	var list []*alteration
	var old []shm.Handle
	var entries []shm.Entry
	for _, x := range a.list {
		if !x.relist {
			continue
		}
		c, entry := x.c, entryOf(x.to.Flow)
		source := c.source
		entry.Continuity = c.past
		if x.anew {
			source, entry.Continuity = x.in.Source, x.past()
		}
		lost := c.isDownAt(source)
		entry.Source, entry.ByteBasis, entry.Valid, entry.Stale = source.String(), c.basis, !lost, lost
		list, old, entries = append(list, x), append(old, c.handle), append(entries, entry)
	}
	if len(list) == 0 {
		return nil
	}
	handles, err := e.catalogue.exchange(old, entries)
	if err != nil {
		return err
	}
	for i, x := range list {
		x.handle = handles[i]
		e.plan.AddSegment(x.handle, entries[i].Latency)
	}
	return nil
}

// exchange is shm.Writer.Exchange, which is tried again where the mirror was damaged meanwhile.
func (m *catalogue) exchange(old []shm.Handle, entries []shm.Entry) ([]shm.Handle, error) {
	handles, err := m.writer.Exchange(old, entries)
	for try := 0; errors.Is(err, shm.ErrTruncated) && try < addTries; try++ {
		m.keep()
		handles, err = m.writer.Exchange(old, entries)
	}
	switch {
	case errors.Is(err, shm.ErrFull):
		m.faults.mu.Lock()
		m.faults.full = err
		m.faults.mu.Unlock()
		err = fmt.Errorf("%w: %w", dataplane.ErrFull, err)
	case errors.Is(err, shm.ErrInvalid):
		err = fmt.Errorf("%w: %w", dataplane.ErrInvalid, err)
	}
	return handles, err
}
