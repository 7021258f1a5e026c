// Package catalogue keeps the entries of the counters in the mirror, and the mirror's file.
//
// An entry of an earlier process is taken over by the counter that counts the same packets: by name and text, or by the
// cookie of the slot that counts. Between [Catalogue.Inherit] and [Catalogue.RemoveInherited] the instance starts.
// Until then each entry keeps its total, under a name of no counter if another counter has its name: a start that fails
// or is killed leaves it to the next one. The entry of a flow that the start goes on without waits under such a name for
// the flow.
// A file that was removed, cut short or overwritten is made again from memory ([Catalogue.Repair]).
//
// The methods of a Catalogue are called with the lock of control calls held, except Conditions. Repair may also be called
// while the holder of the lock lets others read.
package catalogue

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/live"
	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/shm"
)

// Options are the parts that a Catalogue works with.
type Options struct {
	Path   string // of the mirror
	Logger *slog.Logger
	Writer *shm.Writer
	Plan   *poll.Plan
	Limits [2]int // of the mirror: dataplane.MirrorConfig.Counters and LatencyCounters
	// Entries returns the entries of all counters, as shm.Writer.Remake needs them.
	Entries func() []shm.Entry
	// Remade is called after the mirror was made again.
	Remade func()
	// Keep is called at each Repair, to make sockets anew that have lost their names.
	Keep func()
}

// Catalogue keeps the entries of all counters.
type Catalogue struct {
	path     string
	log      *slog.Logger
	writer   *shm.Writer
	plan     *poll.Plan
	current  func() []shm.Entry
	remade   func()
	keep     func()
	starting bool // between Inherit and RemoveInherited
	// inherited holds the entries of an earlier process by name, without the entries that were taken over; after
	// RemoveInherited those that wait. named holds all of them by the name that the counter had, renamed by cookie.
	inherited map[string]*Inherited
	named     map[string][]*Inherited
	renamed   map[uint64]*Inherited
	taken     map[shm.Handle]*Inherited // entries that were taken over, for GiveBack
	left      map[string][]*Inherited   // by text: entries that wait for counters that a change ends; see Leave
	limits    [2]int                    // of Options
	beyond    [2]int                    // by how many entries they may be exceeded

	faults faults
	socket *live.Socket // nil: no reader reads live
}

// New returns the catalogue of a mirror.
func New(o Options) *Catalogue {
	return &Catalogue{path: o.Path, log: o.Logger, writer: o.Writer, plan: o.Plan, limits: o.Limits, current: o.Entries, remade: o.Remade, keep: o.Keep}
}

// Inherited is an entry of an earlier process, and the last total that it published.
type Inherited struct {
	shm.Entry
	total backend.Pair
	err   error // why the total is not known
}

// Total returns the last total that the earlier process published.
func (o *Inherited) Total() (backend.Pair, error) { return o.total, o.err }

// Inheriting reports whether the instance starts: entries of an earlier process may be taken over.
func (m *Catalogue) Inheriting() bool { return m.starting }

// Inherit reads the entries of an earlier process.
func (m *Catalogue) Inherit() {
	m.starting = true
	m.inherited = make(map[string]*Inherited)
	m.named = make(map[string][]*Inherited)
	m.renamed = make(map[uint64]*Inherited)
	m.taken = make(map[shm.Handle]*Inherited)
	var all, aside [2]int
	for _, entry := range m.writer.Entries() {
		m.plan.AddSegment(entry.Handle, entry.Latency)
		last, err := m.writer.Last(entry.Handle)
		if err == nil {
			m.plan.RestoreValue(entry.Handle.Index, last)
		}
		old := &Inherited{Entry: entry, total: totalOf(last, entry.Continuity), err: err}
		m.renamed[entry.Continuity.Cookie] = old
		class := classOf(entry)
		if all[class]++; old.isAside() {
			aside[class]++
		}
		m.inherit(old)
	}
	for class := range all {
		m.beyond[class] = max(aside[class], all[class]-m.limits[class])
	}
	_ = m.setLimits() // where the mirror is damaged, the first entry fails
}

// totalOf returns the last total of an entry: its value, or its base where that is higher. A process that was killed had
// written the base of a slot, and not yet a value with it. So had a start that failed, in place of another entry.
func totalOf(last shm.Value, c shm.Continuity) backend.Pair {
	total := backend.Pair{Packets: last.Packets, Bytes: last.Bytes}
	base := backend.Pair{Packets: c.BasePackets, Bytes: c.BaseBytes}
	if last.SampledAt == 0 {
		return base
	}
	return backend.Max(total, base)
}

// inherit notes an entry that a counter may take over.
func (m *Catalogue) inherit(old *Inherited) {
	name := old.Name
	if old.isAside() {
		name = old.Labels[formerName]
	}
	m.inherited[old.Name] = old
	m.named[name] = append(m.named[name], old)
}

// formerName is the label with the name that an entry had before it was set aside.
const formerName = "former_name"

// isAside reports whether the entry was set aside.
func (o *Inherited) isAside() bool { return strings.HasPrefix(o.Name, "~") }

// aside returns the entry under a name that no counter can have, for the counter of a name. The handle makes it unique in
// the mirror.
func (o *Inherited) aside(former string) shm.Entry {
	e := o.Entry
	e.Name = fmt.Sprintf("~%d.%d", o.Handle.Index, o.Handle.Generation)
	e.Labels = map[string]string{formerName: former}
	return e
}

// classOf returns the place of an entry's limit in Options.Limits.
func classOf(e shm.Entry) int {
	if e.Latency {
		return 1
	}
	return 0
}

// setLimits lets the mirror exceed the limits by the entries that were set aside. At a start, an entry that is beyond the
// limits already can be set aside too.
func (m *Catalogue) setLimits() error {
	limits := m.limits
	for class, n := range limits {
		if n > 0 {
			limits[class] = min(n+m.beyond[class], shm.MaxCounters)
		}
	}
	return m.unlessDamaged(m.writer.SetLimits(limits[0], limits[1]))
}

// past returns the entry of an earlier process for the same counter, or nil: an entry of its name that counted the same
// packets, or an entry of another name with one of its cookies. It skips those of gone, which other counters have taken over.
func (m *Catalogue) past(want shm.Entry, cookies []uint64, gone map[*Inherited]bool) *Inherited {
	for _, old := range m.named[want.Name] {
		if old.Kind != want.Kind || m.inherited[old.Name] != old || gone[old] {
			continue
		}
		same := old.Text == want.Text || strings.HasSuffix(old.Text, shm.TextSum(want.Text))
		if same || slices.Contains(cookies, old.Continuity.Cookie) {
			return old
		}
	}
	for _, c := range cookies {
		if old := m.renamed[c]; old != nil && c != 0 && old.Kind == want.Kind {
			return old
		}
	}
	return nil
}

// Entry finds or makes the entry of a counter. It returns the handle and the base of the total: past computes it from the
// entry of an earlier process, or from nil. The total goes on also in an entry that is made again, because the name,
// the place and the labels of an entry are fixed. cookies identify an entry that has another name. An entry of another
// counter that has the name is set aside: its counter may come later in this start, or in the next one.
func (m *Catalogue) Entry(want shm.Entry, cookies []uint64, past func(old *Inherited) (shm.Continuity, error)) (shm.Handle, shm.Continuity, error) {
	was, name := m.past(want, cookies, nil), want.Name
	if was == nil {
		if was = m.leftBy(want, nil); was != nil {
			name = was.Labels[formerName]
		}
	}
	c, err := past(was)
	if err != nil {
		return shm.Handle{}, c, err
	}
	want.Continuity = c
	want.Handle, err = m.takeOver(want, was)
	if err == nil && was != nil {
		if m.starting { // a slot that stays goes on from there
			want.Continuity = was.Continuity
		}
		m.taken[want.Handle] = &Inherited{Entry: want, total: was.total, err: was.err}
		m.taken[want.Handle].Name = name
	}
	return want.Handle, c, err
}

// takeOver finds or makes the entry of a counter, from the entry of an earlier process for it, or nil.
func (m *Catalogue) takeOver(want shm.Entry, was *Inherited) (shm.Handle, error) {
	c, old := want.Continuity, m.inherited[want.Name]
	there := was != nil && m.inherited[was.Name] == was // else another counter has taken it over
	if old != nil && old == was && old.Latency == want.Latency && maps.Equal(old.Labels, want.Labels) {
		delete(m.inherited, want.Name)
		return old.Handle, m.writer.SetContinuity(old.Handle, c)
	}
	var from []shm.Handle
	var to []shm.Entry
	var goesOn []bool
	aside, beyond := old != nil && old != was, m.beyond
	if aside {
		m.beyond[classOf(old.Entry)]++
		from, to, goesOn = append(from, old.Handle), append(to, old.aside(old.Name)), append(goesOn, true)
	}
	if there {
		if was.isAside() {
			m.beyond[classOf(was.Entry)]--
		}
		// A base above the value holds counts that a device kept after the value: without a value the total is the base.
		shows := int64(was.total.Packets-c.BasePackets) >= 0 && int64(was.total.Bytes-c.BaseBytes) >= 0
		from, to, goesOn = append(from, was.Handle), append(to, want), append(goesOn, shows)
	}
	if len(from) > 0 {
		var handles []shm.Handle
		err := m.setLimits()
		if err == nil {
			handles, err = m.Exchange(from, to, goesOn)
		}
		if err != nil {
			m.beyond = beyond
			return shm.Handle{}, errors.Join(err, m.setLimits())
		}
		if there {
			delete(m.inherited, was.Name)
		}
		if aside {
			delete(m.inherited, want.Name)
			old.Entry = to[0]
			old.Handle = handles[0]
			m.inherited[old.Name] = old
		}
		if there {
			return handles[len(handles)-1], nil
		}
	}
	return m.newEntry(want)
}

// newEntry is add with the sentinels of package dataplane.
func (m *Catalogue) newEntry(want shm.Entry) (shm.Handle, error) {
	h, err := m.add(want)
	switch {
	case errors.Is(err, shm.ErrFull):
		err = fmt.Errorf("%w: %w", dataplane.ErrFull, err)
	case errors.Is(err, shm.ErrInvalid):
		err = fmt.Errorf("%w: %w", dataplane.ErrInvalid, err)
	}
	return h, err
}

// Completion finds or makes the mirror's entry of a completion counter. A total of an earlier process
// goes on from its last value, with a discontinuity: completions between that value and the end of the
// process are unknown.
func (m *Catalogue) Completion(want shm.Entry) (shm.Handle, shm.Continuity, error) {
	cookie := rand.Uint64() | 1
	return m.Entry(want, nil, func(old *Inherited) (shm.Continuity, error) {
		if old == nil {
			return shm.Continuity{Cookie: cookie}, nil
		}
		last := old.total
		if comp, errs, ok := m.writer.LastDevice(old.Handle); ok && comp >= last.Packets && errs >= last.Bytes {
			last.Packets, last.Bytes = comp, errs // a device went on counting after that value
		}
		return shm.Continuity{
			Cookie: cookie, BasePackets: last.Packets, BaseBytes: last.Bytes,
			Discontinuities: old.Continuity.Discontinuities + 1,
		}, old.err
	})
}
