package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// catalogue keeps the entries of all counters in the mirror. Its methods are called with Engine.ctl held.
type catalogue struct {
	path   string
	log    *slog.Logger
	writer *shm.Writer
	plan   *poll.Plan
	pairs  *queuepair.Set
	flows  map[string]*flowState // Engine.flows
	adding []*flowState          // flows that have entries and are not in flows yet
	// inherited holds the entries of an earlier process by name until Engine.resume ends, without the entries that
	// were taken over. renamed holds all of them by cookie.
	inherited map[string]*inherited
	renamed   map[uint64]*inherited

	faults mirrorFaults
}

// entryOf returns the entry of a flow in the mirror.
func entryOf(f flow.Flow) shm.Entry {
	return shm.Entry{
		Name: f.Name, Kind: "flow", Unit: "packets", Text: backend.Identity(f), Labels: f.Labels, Latency: f.Latency,
	}
}

// isDown reports whether all interfaces of a flow are missing.
func (c *flowState) isDown() bool { return c.isDownAt(c.source) }

// isDownAt is isDown of a flow with the given source.
func (c *flowState) isDownAt(source dataplane.Source) bool {
	_, hooks := c.backend.(backend.SoftwareBackend)
	return (hooks || c.offload != nil) && len(source.Devices) == 0
}

// inherited is an entry of an earlier process, and the last total that it published.
type inherited struct {
	shm.Entry
	total backend.Pair
	err   error // why the total is not known
}

// writeSource writes the source of a flow to the mirror. A flow whose interfaces are all missing has no source, and
// keeps its last value.
func (m *catalogue) writeSource(c *flowState) error {
	lost := c.isDown()
	return m.unlessDamaged(errors.Join(
		m.writer.SetSource(c.handle, c.source.String(), c.basis),
		m.writer.SetFlags(c.handle, !lost, lost, false)))
}

// inherit reads the entries of an earlier process.
func (m *catalogue) inherit() {
	m.inherited, m.renamed = make(map[string]*inherited), make(map[uint64]*inherited)
	for _, entry := range m.writer.Entries() {
		m.plan.AddSegment(entry.Handle, entry.Latency)
		last, err := m.writer.Last(entry.Handle)
		if err == nil {
			m.plan.RestoreValue(entry.Handle.Index, last)
		}
		old := &inherited{Entry: entry, total: backend.Pair{Packets: last.Packets, Bytes: last.Bytes}, err: err}
		if last.SampledAt == 0 { // a start that failed made it in place of another entry, with the total of that entry
			old.total = backend.Pair{Packets: entry.Continuity.BasePackets, Bytes: entry.Continuity.BaseBytes}
		}
		m.inherited[entry.Name] = old
		m.renamed[entry.Continuity.Cookie] = old
	}
}

// past returns the entry of an earlier process for the same counter, or nil: the entry of its name, if that counted the
// same packets, or an entry of another name with one of its cookies.
func (m *catalogue) past(want shm.Entry, cookies []uint64) *inherited {
	old := m.inherited[want.Name]
	if old != nil && old.Kind == want.Kind && (old.Text == want.Text || slices.Contains(cookies, old.Continuity.Cookie)) {
		return old
	}
	for _, c := range cookies {
		if old := m.renamed[c]; old != nil && c != 0 && old.Kind == want.Kind {
			return old
		}
	}
	return nil
}

// entry finds or makes the entry of a counter. It returns the handle and the base of the total: past computes it from the
// entry of an earlier process, or from nil. The total goes on also in an entry that is made again, because the name,
// the place and the labels of an entry are fixed. cookies identify an entry that has another name, or whose text was
// cut.
func (m *catalogue) entry(want shm.Entry, cookies []uint64, past func(old *inherited) (shm.Continuity, error)) (shm.Handle, shm.Continuity, error) {
	was, old := m.past(want, cookies), m.inherited[want.Name]
	delete(m.inherited, want.Name)
	c, err := past(was)
	switch {
	case err != nil && old == nil:
		return shm.Handle{}, c, err
	case err != nil:
		return old.Handle, c, err
	case old != nil && old == was && old.Latency == want.Latency && maps.Equal(old.Labels, want.Labels):
		return old.Handle, c, m.writer.SetContinuity(old.Handle, c)
	case old != nil:
		m.plan.Remove(old.Handle.Index)
		if err := m.writer.Remove(old.Handle); err != nil {
			return old.Handle, c, err
		}
	}
	want.Continuity = c
	h, err := m.newEntry(want)
	return h, c, err
}

// newEntry is addEntry with the sentinels of package dataplane.
func (m *catalogue) newEntry(want shm.Entry) (shm.Handle, error) {
	h, err := m.addEntry(want)
	switch {
	case errors.Is(err, shm.ErrFull):
		err = fmt.Errorf("%w: %w", dataplane.ErrFull, err)
	case errors.Is(err, shm.ErrInvalid):
		err = fmt.Errorf("%w: %w", dataplane.ErrInvalid, err)
	}
	return h, err
}

// carryOn returns the continuity of an entry. If the cookie of the earlier entry names the slot, the slot has missed no
// packet, and the total goes on from its base. Otherwise it goes on from the last published total, with one more
// discontinuity. A slot that was adopted with another cookie has counted before; that count is not added.
func carryOn(b backend.Backend, old *inherited, in backend.Installed) (shm.Continuity, error) {
	if old == nil {
		return shm.Continuity{Cookie: in.Cookie}, nil
	}
	c := old.Continuity
	if c.Cookie == in.Cookie {
		if in.Gap {
			c.Discontinuities++
		}
		return c, nil
	}
	if old.err != nil {
		return shm.Continuity{}, old.err
	}
	var own backend.Pair
	var err error
	if in.Adopted {
		own, err = readOne(b, in.ID)
	}
	return shm.Continuity{
		Cookie: in.Cookie, BasePackets: old.total.Packets - own.Packets, BaseBytes: old.total.Bytes - own.Bytes,
		Discontinuities: c.Discontinuities + 1,
	}, err
}
