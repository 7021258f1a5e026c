// Package catalogue manages the entries of counters in the mirror, and the mirror's file.
//
// At a start, between [Catalogue.Inherit] and [Catalogue.RemoveInherited], each counter takes over the entry that counted the
// same packets before the restart. It finds that entry by name and text, or by the cookie of the slot that counts. Until
// RemoveInherited every entry keeps its total, so that a start which fails or is killed loses none. If a new counter needs the
// name of such an entry, the entry is set aside: it gets a name that no counter can have. The entry of a flow that the start
// continues without is set aside too, until the flow comes back.
//
// If another process removes, cuts or overwrites the mirror's file, [Catalogue.Repair] makes it anew from memory.
//
// Callers must hold the lock of control calls, except for Conditions. Repair may also run while the holder of that lock
// lets readers in.
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

// Options are what a Catalogue needs from the engine.
type Options struct {
	Path   string // of the mirror
	Logger *slog.Logger
	Writer *shm.Writer
	Plan   *poll.Plan
	Limits [2]int // of the mirror: dataplane.MirrorConfig.Counters and LatencyCounters
	// Entries returns the entries of all counters, as shm.Writer.Remake needs them.
	Entries func() []shm.Entry
	// Remade is called after Repair has made the mirror anew.
	Remade func()
	// Keep is called at each Repair. It should make sockets anew that have lost their names.
	Keep func()
}

// Catalogue manages the entries of all counters.
type Catalogue struct {
	path    string
	log     *slog.Logger
	writer  *shm.Writer
	plan    *poll.Plan
	current func() []shm.Entry
	remade  func()
	keep    func()

	starting bool // between Inherit and RemoveInherited

	// inheritedByName has the entries of an earlier process that no counter has taken over yet, by their current names.
	// After RemoveInherited only entries that wait for their counters are left in it.
	inheritedByName map[string]*Inherited
	// These two have the same entries and those taken over: by the name that the counter had, and by cookie.
	inheritedByFormerName map[string][]*Inherited
	inheritedByCookie     map[uint64]*Inherited

	takenOverByHandle map[shm.Handle]*Inherited // what GiveBack needs
	offeredByText     map[string][]*Inherited   // see Offer

	limits [2]int // of Options
	beyond [2]int // by how many entries set aside the mirror may exceed limits

	faults faults
	socket *live.Socket // nil: no reader reads live
}

// New returns the catalogue of a mirror.
func New(o Options) *Catalogue {
	return &Catalogue{
		path:    o.Path,
		log:     o.Logger,
		writer:  o.Writer,
		plan:    o.Plan,
		limits:  o.Limits,
		current: o.Entries,
		remade:  o.Remade,
		keep:    o.Keep,
	}
}

// Inherited is an entry of an earlier process, and the last total that it published.
type Inherited struct {
	shm.Entry
	total backend.Pair
	err   error // why the total is unknown
}

// Total returns the last total of the earlier process, or why it is unknown.
func (o *Inherited) Total() (backend.Pair, error) { return o.total, o.err }

// Inheriting reports whether the instance is starting, so that counters may take over entries of an earlier process.
func (m *Catalogue) Inheriting() bool { return m.starting }

// Inherit reads the entries of an earlier process, and begins the start.
func (m *Catalogue) Inherit() {
	m.starting = true
	m.inheritedByName = make(map[string]*Inherited)
	m.inheritedByFormerName = make(map[string][]*Inherited)
	m.inheritedByCookie = make(map[uint64]*Inherited)
	m.takenOverByHandle = make(map[shm.Handle]*Inherited)

	var all, aside [2]int // by class: entries, and how many of them are set aside
	for _, entry := range m.writer.Entries() {
		m.plan.AddSegment(entry.Handle, entry.Latency)
		last, err := m.writer.Last(entry.Handle)
		if err == nil {
			m.plan.RestoreValue(entry.Handle.Index, last)
		}
		old := &Inherited{Entry: entry, total: totalOf(last, entry.Continuity), err: err}
		m.inheritedByCookie[entry.Continuity.Cookie] = old
		m.inherit(old)

		class := classOf(entry)
		all[class]++
		if old.isAside() {
			aside[class]++
		}
	}

	for class := range all {
		m.beyond[class] = max(aside[class], all[class]-m.limits[class])
	}
	_ = m.setLimits() // an error means a damaged mirror, and the first Entry returns it
}

// totalOf returns the last total of an entry: its value, or its base if that is higher. The base is higher if the process was
// killed after it wrote the base of a new slot and before it published a value. A start that failed may leave the same.
func totalOf(last shm.Value, c shm.Continuity) backend.Pair {
	total := backend.Pair{Packets: last.Packets, Bytes: last.Bytes}
	base := backend.Pair{Packets: c.BasePackets, Bytes: c.BaseBytes}
	if last.SampledAt == 0 {
		return base
	}
	return backend.Max(total, base)
}

// inherit makes an entry available to the counter that has its name, or had it before it was set aside.
func (m *Catalogue) inherit(old *Inherited) {
	former := old.Name
	if old.isAside() {
		former = old.Labels[formerName]
	}
	m.inheritedByName[old.Name] = old
	m.inheritedByFormerName[former] = append(m.inheritedByFormerName[former], old)
}

// formerName is the label for the name that an entry had before it was set aside.
const formerName = "former_name"

// isAside reports whether the entry was set aside.
func (o *Inherited) isAside() bool { return strings.HasPrefix(o.Name, "~") }

// aside returns the entry, set aside for the counter of that name. Its new name contains the handle, so it is unique.
func (o *Inherited) aside(former string) shm.Entry {
	e := o.Entry
	e.Name = fmt.Sprintf("~%d.%d", o.Handle.Index, o.Handle.Generation)
	e.Labels = map[string]string{formerName: former}
	return e
}

// classOf returns the index of an entry's limit in Options.Limits.
func classOf(e shm.Entry) int {
	if e.Latency {
		return 1
	}
	return 0
}

// setLimits sets the limits of the mirror. Entries set aside do not count against the configured limits, so the mirror's are
// higher by their number. At a start that includes entries which exceeded the limits before.
func (m *Catalogue) setLimits() error {
	limits := m.limits
	for class, n := range limits {
		if n > 0 {
			limits[class] = min(n+m.beyond[class], shm.MaxCounters)
		}
	}
	return m.unlessDamaged(m.writer.SetLimits(limits[0], limits[1]))
}

// predecessor returns the entry of an earlier process for the same counter, or nil. That is an entry of its name that counted
// the same packets, or an entry of any name with one of its cookies. predecessor skips the entries in taken: it is for Room,
// where they stand for entries that other counters will have taken over by then.
func (m *Catalogue) predecessor(want shm.Entry, cookies []uint64, taken map[*Inherited]bool) *Inherited {
	for _, old := range m.inheritedByFormerName[want.Name] {
		if old.Kind != want.Kind || m.inheritedByName[old.Name] != old || taken[old] {
			continue
		}
		sameText := old.Text == want.Text || strings.HasSuffix(old.Text, shm.TextSum(want.Text))
		if sameText || slices.Contains(cookies, old.Continuity.Cookie) {
			return old
		}
	}

	for _, c := range cookies {
		if old := m.inheritedByCookie[c]; old != nil && c != 0 && old.Kind == want.Kind {
			return old
		}
	}
	return nil
}

// Entry finds or makes the entry of a counter. It returns the handle and the base of the total. baseOf computes the base from
// the entry of an earlier process, or from nil if there is none. cookies identify such an entry even if it has another name.
//
// If another counter's entry has the name, Entry sets it aside: that counter may come later in this start, or in the next one.
// The name, the place and the labels of an entry cannot change, so Entry may have to exchange the entry for a new one. The
// total continues in that one too.
func (m *Catalogue) Entry(want shm.Entry, cookies []uint64, baseOf func(old *Inherited) (shm.Continuity, error)) (shm.Handle, shm.Continuity, error) {
	old := m.predecessor(want, cookies, nil)
	name := want.Name
	if old == nil {
		old = m.offeredTo(want, nil)
		if old != nil {
			name = old.Labels[formerName]
		}
	}

	base, err := baseOf(old)
	if err != nil {
		return shm.Handle{}, base, err
	}
	want.Continuity = base
	want.Handle, err = m.takeOver(want, old)
	if err != nil || old == nil {
		return want.Handle, base, err
	}

	taken := &Inherited{Entry: want, total: old.total, err: old.err}
	taken.Name = name
	if m.starting { // GiveBack restores this one, so that the next start can continue from the old slot
		taken.Continuity = old.Continuity
	}
	m.takenOverByHandle[want.Handle] = taken
	return want.Handle, base, nil
}

// takeOver finds or makes the entry want. old is the entry of an earlier process for the same counter, or nil.
func (m *Catalogue) takeOver(want shm.Entry, old *Inherited) (shm.Handle, error) {
	available := old != nil && m.inheritedByName[old.Name] == old // else another counter has taken it over
	namesake := m.inheritedByName[want.Name]
	if namesake != nil && namesake == old && old.Latency == want.Latency && maps.Equal(old.Labels, want.Labels) {
		delete(m.inheritedByName, want.Name)
		return old.Handle, m.writer.SetContinuity(old.Handle, want.Continuity)
	}
	if namesake == old {
		namesake = nil // it is exchanged for want, so its name becomes free
	}
	if namesake == nil && !available {
		return m.newEntry(want)
	}

	var from []shm.Handle
	var to []shm.Entry
	var goesOn []bool
	beyond := m.beyond
	if namesake != nil {
		m.beyond[classOf(namesake.Entry)]++
		from = append(from, namesake.Handle)
		to = append(to, namesake.aside(namesake.Name))
		goesOn = append(goesOn, true)
	}
	if available {
		if old.isAside() {
			m.beyond[classOf(old.Entry)]--
		}
		from = append(from, old.Handle)
		to = append(to, want)
		goesOn = append(goesOn, showsLastValue(old, want.Continuity))
	}

	err := m.setLimits()
	var handles []shm.Handle
	if err == nil {
		handles, err = m.Exchange(from, to, goesOn)
	}
	if err != nil {
		m.beyond = beyond
		return shm.Handle{}, errors.Join(err, m.setLimits())
	}

	if available {
		delete(m.inheritedByName, old.Name)
	}
	if namesake != nil {
		delete(m.inheritedByName, want.Name)
		namesake.Entry = to[0]
		namesake.Handle = handles[0]
		m.inheritedByName[namesake.Name] = namesake
	}
	if available {
		return handles[len(handles)-1], nil
	}
	return m.newEntry(want)
}

// showsLastValue reports whether the entry with that base may show old's last value until the first cycle. It may not if the
// base is ahead of the value, because a device counted on after it: the total must not fall.
func showsLastValue(old *Inherited, base shm.Continuity) bool {
	return int64(old.total.Packets-base.BasePackets) >= 0 && int64(old.total.Bytes-base.BaseBytes) >= 0
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

// Completion finds or makes the mirror's entry of a completion counter. If an earlier process had it, the total continues
// from its last value, with a discontinuity, because nobody knows the completions between that value and the end of the
// process.
func (m *Catalogue) Completion(want shm.Entry) (shm.Handle, shm.Continuity, error) {
	cookie := rand.Uint64() | 1
	return m.Entry(want, nil, func(old *Inherited) (shm.Continuity, error) {
		if old == nil {
			return shm.Continuity{Cookie: cookie}, nil
		}
		last := old.total
		if comp, errs, ok := m.writer.LastDevice(old.Handle); ok && comp >= last.Packets && errs >= last.Bytes {
			last.Packets, last.Bytes = comp, errs // the device counted on after that value
		}
		return shm.Continuity{
			Cookie:          cookie,
			BasePackets:     last.Packets,
			BaseBytes:       last.Bytes,
			Discontinuities: old.Continuity.Discontinuities + 1,
		}, old.err
	})
}
