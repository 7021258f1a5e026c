package catalogue

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// RemoveInherited removes the entries of an earlier process that no counter has taken over, and ends the start. The
// entries of counters that wait for their source are set aside until the next call: their totals go on when it is there.
func (m *Catalogue) RemoveInherited(waiting []shm.Entry) error {
	if !m.starting && len(m.inherited) == 0 {
		return nil
	}
	waits := make(map[*Inherited]bool)
	for _, want := range waiting {
		if old := m.past(want, nil); old != nil {
			waits[old] = true
		}
	}
	for _, old := range m.inherited {
		if waits[old] {
			continue
		}
		if err := m.Remove(old.Handle); err != nil {
			return fmt.Errorf("removing the counter %q of an earlier run: %w", old.Name, err)
		}
	}
	m.inherited, m.named, m.renamed = make(map[string]*Inherited), make(map[string][]*Inherited), nil
	var beyond [2]int
	for old := range waits {
		if err := m.await(old); err != nil {
			return err
		}
		beyond[classOf(old.Entry)]++
	}
	m.starting, m.taken, m.beyond = false, make(map[shm.Handle]*Inherited), beyond
	return m.setLimits()
}

// GiveBack removes the entry of a counter that is not counted after all. An entry that was taken over is inherited again:
// at a start as it was, so that its total goes on from its slot, if that stays. Otherwise, and after the start, the total
// goes on with a discontinuity: packets of meanwhile are lost, unless a cycle published them.
func (m *Catalogue) GiveBack(h shm.Handle) error {
	old := m.taken[h]
	if old == nil {
		return m.Remove(h)
	}
	delete(m.taken, h)
	m.plan.Hold(h)
	last, err := m.writer.Last(h)
	if err = m.unlessDamaged(err); err != nil {
		return err
	}
	if last.SampledAt != 0 {
		old.total = backend.Pair{Packets: last.Packets, Bytes: last.Bytes}
	}
	if !m.starting {
		return m.await(old)
	}
	m.inherit(old)
	return m.SetContinuity(h, old.Continuity)
}

// await sets an entry aside in which no counter counts, if it is not, and notes it.
func (m *Catalogue) await(old *Inherited) error {
	old.stop()
	if !old.isAside() {
		was := m.beyond
		m.beyond[classOf(old.Entry)]++
		err := m.setLimits()
		var handles []shm.Handle
		to := old.aside()
		if err == nil {
			handles, err = m.Exchange([]shm.Handle{old.Handle}, []shm.Entry{to}, []bool{true})
		}
		if err != nil {
			m.beyond = was
			return fmt.Errorf("keeping the total of %q, which is not counted: %w", old.Name, errors.Join(err, m.setLimits()))
		}
		old.Entry, old.Handle = to, handles[0]
	}
	m.inherit(old)
	return nil
}

// stop makes the entry one without a source, whose total goes on from the last value.
func (o *Inherited) stop() {
	o.Source, o.Valid, o.Stale = "", false, true
	if o.err == nil { // else only the slot knows the total
		o.Continuity.Cookie, o.Continuity.BasePackets, o.Continuity.BaseBytes = 0, o.total.Packets, o.total.Bytes
	}
}
