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

// RemoveInherited removes the entries of an earlier process that no counter has taken over, and ends the start. The
// entries of counters that wait for their source are set aside until the next call: their totals go on when it is there.
// Such a counter may have had another name: it gets an entry of its text that no counter has.
func (m *Catalogue) RemoveInherited(waiting []shm.Entry) error {
	if !m.starting && len(m.inherited) == 0 {
		return nil
	}
	waits := make(map[*Inherited]string) // the names of their counters
	var renamed []shm.Entry
	for _, want := range waiting {
		if old := m.past(want, nil, nil); old != nil {
			waits[old] = want.Name
		} else {
			renamed = append(renamed, want)
		}
	}
	left := m.byText()
	for _, want := range renamed {
		for _, old := range slices.Concat(left[want.Text], left[shm.TextSum(want.Text)]) {
			if old.Kind == want.Kind && waits[old] == "" {
				waits[old] = want.Name
				break
			}
		}
	}
	for _, old := range m.inherited {
		if waits[old] != "" {
			continue
		}
		if err := m.Remove(old.Handle); err != nil {
			return fmt.Errorf("removing the counter %q of an earlier run: %w", old.Name, err)
		}
	}
	m.inherited = make(map[string]*Inherited)
	m.named = make(map[string][]*Inherited)
	m.renamed = nil
	var beyond [2]int
	for old, name := range waits {
		if err := m.await(old, name); err != nil {
			return err
		}
		beyond[classOf(old.Entry)]++
	}
	m.starting = false
	m.taken = make(map[shm.Handle]*Inherited)
	m.beyond = beyond
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

// byText returns the inherited entries by their texts, and by the last bytes of their texts, in the order of the mirror.
func (m *Catalogue) byText() map[string][]*Inherited {
	out := make(map[string][]*Inherited, 2*len(m.inherited))
	for _, old := range slices.SortedFunc(maps.Values(m.inherited), func(a, b *Inherited) int { return cmp.Compare(a.Handle.Index, b.Handle.Index) }) {
		end := old.Text[max(0, len(old.Text)-len(shm.TextSum(""))):]
		out[old.Text] = append(out[old.Text], old)
		out[end] = append(out[end], old)
	}
	return out
}

// Leave lets counters of other names that count the same packets take over the entries that wait for counters of names,
// until end is called. A change that ends the counters calls it.
func (m *Catalogue) Leave(names []string) (end func()) {
	if len(names) == 0 || len(m.inherited) == 0 {
		return func() {}
	}
	ends := make(map[string]bool, len(names))
	for _, name := range names {
		ends[name] = true
	}
	m.left = m.byText()
	for text, all := range m.left {
		m.left[text] = slices.DeleteFunc(all, func(o *Inherited) bool { return !o.isAside() || !ends[o.Labels[formerName]] })
	}
	return func() { m.left = nil }
}

// leftBy returns an entry of Leave for a counter, or nil. It skips those of gone, which other counters have taken over.
func (m *Catalogue) leftBy(want shm.Entry, gone map[*Inherited]bool) *Inherited {
	if len(m.left) == 0 {
		return nil
	}
	for _, old := range slices.Concat(m.left[want.Text], m.left[shm.TextSum(want.Text)]) {
		if old.Kind == want.Kind && m.inherited[old.Name] == old && !gone[old] {
			return old
		}
	}
	return nil
}

// await sets an entry aside in which no counter counts, if it is not, for the counter of a name, and notes it.
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

// stop makes the entry one without a source, whose total goes on from the last value.
func (o *Inherited) stop() {
	o.Source = ""
	o.Valid = false
	o.Stale = true
	if o.err == nil { // else only the slot knows the total
		o.Continuity.Cookie = 0
		o.Continuity.BasePackets = o.total.Packets
		o.Continuity.BaseBytes = o.total.Bytes
	}
}
