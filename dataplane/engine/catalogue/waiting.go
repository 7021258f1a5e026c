package catalogue

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// RemoveInherited ends the start. It removes the entries of an earlier process that no counter has taken over, except those for
// waiting, counters that wait for their source. It sets these aside until the next call, so that their totals continue when the
// source comes. If no entry matches the name of a waiting counter, it may have been renamed: RemoveInherited then takes an entry
// with its text.
func (m *Catalogue) RemoveInherited(waiting []shm.Entry) error {
	if !m.starting && len(m.inheritedByName) == 0 {
		return nil
	}

	waits := make(map[*Inherited]string) // entries to set aside, and the names of their counters
	var renamed []shm.Entry
	for _, want := range waiting {
		if old := m.predecessor(want, nil, nil); old != nil {
			waits[old] = want.Name
		} else {
			renamed = append(renamed, want)
		}
	}
	byText := m.byText()
	for _, want := range renamed {
		for _, old := range slices.Concat(byText[want.Text], byText[shm.TextSum(want.Text)]) {
			if old.Kind == want.Kind && waits[old] == "" {
				waits[old] = want.Name
				break
			}
		}
	}

	for _, old := range m.inheritedByName {
		if waits[old] != "" {
			continue
		}
		if err := m.Remove(old.Handle); err != nil {
			return fmt.Errorf("removing the counter %q of an earlier run: %w", old.Name, err)
		}
	}
	m.inheritedByName = make(map[string]*Inherited)
	m.inheritedByFormerName = make(map[string][]*Inherited)
	m.inheritedByCookie = nil

	var beyond [2]int
	for old, name := range waits {
		if err := m.await(old, name); err != nil {
			return err
		}
		beyond[classOf(old.Entry)]++
	}

	m.starting = false
	m.takenOverByHandle = make(map[shm.Handle]*Inherited)
	m.beyond = beyond
	return m.setLimits()
}

// GiveBack undoes Entry for a counter that is not counted after all. It removes a new entry. An entry that the counter took over
// becomes available again. During a start GiveBack restores its continuity, so if its old slot still exists, the next counter
// continues the total from there. If not, and after the start, the total continues with a discontinuity: packets counted
// meanwhile are lost, unless a cycle published them.
func (m *Catalogue) GiveBack(h shm.Handle) error {
	old := m.takenOverByHandle[h]
	if old == nil {
		return m.Remove(h)
	}
	delete(m.takenOverByHandle, h)

	m.plan.StopReading(h)
	last, err := m.writer.Last(h)
	if err = m.unlessDamaged(err); err != nil {
		return err
	}
	if last.SampledAt != 0 {
		old.total = backend.Pair{Packets: last.Packets, Bytes: last.Bytes}
	}

	if !m.starting {
		return m.await(old, old.Name)
	}
	m.inherit(old)
	return m.SetContinuity(h, old.Continuity)
}

// byText returns the inherited entries in the order of the mirror, by text. Each entry is also listed by the last bytes of its
// text, because the mirror cuts a long text and ends it with a checksum of the whole.
func (m *Catalogue) byText() map[string][]*Inherited {
	out := make(map[string][]*Inherited, 2*len(m.inheritedByName))
	for _, old := range slices.SortedFunc(maps.Values(m.inheritedByName), func(a, b *Inherited) int { return cmp.Compare(a.Handle.Index, b.Handle.Index) }) {
		end := old.Text[max(0, len(old.Text)-len(shm.TextSum(""))):]
		out[old.Text] = append(out[old.Text], old)
		out[end] = append(out[end], old)
	}
	return out
}

// Offer lets other counters take over the entries set aside for the counters of those names, if they count the same packets. A
// change that removes these counters calls it, because it may add one of them under another name. end withdraws the offer.
func (m *Catalogue) Offer(names []string) (end func()) {
	if len(names) == 0 || len(m.inheritedByName) == 0 {
		return func() {}
	}
	offered := make(map[string]bool, len(names))
	for _, name := range names {
		offered[name] = true
	}
	m.offeredByText = m.byText()
	for text, all := range m.offeredByText {
		m.offeredByText[text] = slices.DeleteFunc(all, func(o *Inherited) bool { return !o.isAside() || !offered[o.Labels[formerName]] })
	}
	return func() { m.offeredByText = nil }
}

// offeredTo returns an offered entry that counted the packets of want, or nil. It skips the entries in taken: see predecessor.
func (m *Catalogue) offeredTo(want shm.Entry, taken map[*Inherited]bool) *Inherited {
	if len(m.offeredByText) == 0 {
		return nil
	}
	for _, old := range slices.Concat(m.offeredByText[want.Text], m.offeredByText[shm.TextSum(want.Text)]) {
		if old.Kind == want.Kind && m.inheritedByName[old.Name] == old && !taken[old] {
			return old
		}
	}
	return nil
}

// await sets an entry aside for the counter of that name, unless it is, and makes it available again.
func (m *Catalogue) await(old *Inherited, name string) error {
	old.stop()
	if !old.isAside() || old.Labels[formerName] != name {
		was := m.beyond
		if !old.isAside() {
			m.beyond[classOf(old.Entry)]++
		}
		err := m.setLimits()
		var handles []shm.Handle
		to := old.aside(name)
		if err == nil {
			handles, err = m.Exchange([]shm.Handle{old.Handle}, []shm.Entry{to}, []bool{true})
		}
		if err != nil {
			m.beyond = was
			return fmt.Errorf("keeping the total of %q, which is not counted: %w", old.Name, errors.Join(err, m.setLimits()))
		}
		old.Entry = to
		old.Handle = handles[0]
	}
	m.inherit(old)
	return nil
}

// stop removes the source of the entry. Its total continues from the last value.
func (o *Inherited) stop() {
	o.Source = ""
	o.Valid = false
	o.Stale = true
	if o.err == nil { // else the total is unknown, except to the slot: keep its cookie
		o.Continuity.Cookie = 0
		o.Continuity.BasePackets = o.total.Packets
		o.Continuity.BaseBytes = o.total.Bytes
	}
}
