package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// entryOf describes a flow to readers of the mirror.
func entryOf(f flow.Flow) shm.Entry {
	return shm.Entry{
		Name: f.Name, Kind: "flow", Unit: "packets", Text: backend.Identity(f), Labels: f.Labels, Latency: f.Latency,
	}
}

// publish gives the flow its entry in the mirror, settles the total that it
// starts from and hands it to the poller.
func (e *Engine) publish(c *counted, in backend.Installed) error {
	var err error
	c.handle, c.past, err = e.entry(entryOf(c.Flow), []uint64{in.Cookie}, func(old *inherited) (shm.Continuity, error) {
		return e.carryOn(c.backend, old, in)
	})
	if err != nil {
		return err
	}
	c.basis = in.Basis
	c.base = backend.Pair{Packets: c.past.BasePackets, Bytes: c.past.BaseBytes}
	if u, ok := c.backend.(backend.SoftwareBackend); ok {
		c.epoch = u.Epoch(c.Placed)
	}
	if err := e.show(c); err != nil {
		return err
	}
	e.plan.SetSource(c.handle, c.backend, in.ID, c.base)
	return nil
}

// show tells readers of the mirror what counts the flow now. No source counts a flow
// whose interfaces are all missing: its value is the last one.
func (e *Engine) show(c *counted) error {
	lost := c.lost()
	return e.spared(errors.Join(
		e.writer.SetSource(c.handle, c.source.String(), c.basis),
		e.writer.SetFlags(c.handle, !lost, lost, false)))
}

// lost tells whether none of the interfaces of a flow is there.
func (c *counted) lost() bool {
	_, hooks := c.backend.(backend.SoftwareBackend)
	return (hooks || c.offload != nil) && len(c.source.Devices) == 0
}

// inherited is an entry of an earlier process and the last total that it published.
type inherited struct {
	shm.Entry
	total backend.Pair
	err   error // why the total is not known
}

// inherit looks at what the mirror holds of an earlier process.
func (e *Engine) inherit() {
	e.inherited, e.renamed = make(map[string]*inherited), make(map[uint64]*inherited)
	for _, entry := range e.writer.Entries() {
		e.plan.AddSegment(entry.Handle, entry.Latency)
		last, err := e.writer.Last(entry.Handle)
		if err == nil {
			e.plan.RestoreValue(entry.Handle.Index, last)
		}
		old := &inherited{Entry: entry, total: backend.Pair{Packets: last.Packets, Bytes: last.Bytes}, err: err}
		if last.SampledAt == 0 { // it was made in another's place by a start that failed, and carries that one's
			old.total = backend.Pair{Packets: entry.Continuity.BasePackets, Bytes: entry.Continuity.BaseBytes}
		}
		e.inherited[entry.Name] = old
		e.renamed[entry.Continuity.Cookie] = old
	}
}

// past is what an earlier run counted of the same counter, or nil: under its name, if
// it counted the same there, or under the name of the entry whose cookie it has.
func (e *Engine) past(want shm.Entry, cookies []uint64) *inherited {
	old := e.inherited[want.Name]
	if old != nil && old.Kind == want.Kind && (old.Text == want.Text || slices.Contains(cookies, old.Continuity.Cookie)) {
		return old
	}
	for _, c := range cookies {
		if old := e.renamed[c]; old != nil && c != 0 && old.Kind == want.Kind {
			return old
		}
	}
	return nil
}

// entry finds or makes the entry of a counter in the mirror and returns it with what its total
// goes on from: past is given what an earlier run counted of the same, or nil. That goes on
// also in an entry that has to be made anew, as the name, the place and the labels of one are
// fixed. cookies are those by which an entry is known that has another name, or whose text was cut.
func (e *Engine) entry(want shm.Entry, cookies []uint64, past func(old *inherited) (shm.Continuity, error)) (shm.Handle, shm.Continuity, error) {
	was, old := e.past(want, cookies), e.inherited[want.Name]
	delete(e.inherited, want.Name)
	c, err := past(was)
	switch {
	case err != nil && old == nil:
		return shm.Handle{}, c, err
	case err != nil:
		return old.Handle, c, err
	case old != nil && old == was && old.Latency == want.Latency && maps.Equal(old.Labels, want.Labels):
		return old.Handle, c, e.writer.SetContinuity(old.Handle, c)
	case old != nil:
		e.plan.Remove(old.Handle.Index)
		if err := e.writer.Remove(old.Handle); err != nil {
			return old.Handle, c, err
		}
	}
	want.Continuity = c
	h, err := e.newEntry(want)
	return h, c, err
}

func (e *Engine) newEntry(want shm.Entry) (shm.Handle, error) {
	h, err := e.list(want)
	switch {
	case errors.Is(err, shm.ErrFull):
		err = fmt.Errorf("%w: %w", dataplane.ErrFull, err)
	case errors.Is(err, shm.ErrInvalid):
		err = fmt.Errorf("%w: %w", dataplane.ErrInvalid, err)
	}
	return h, err
}

// carryOn is the past of an entry: its own when its cookie still names the
// counter, which then has missed nothing, else the last published total, and
// one more discontinuity. A counter that was adopted for other reasons than its
// cookie has counted before, and that is not added.
func (e *Engine) carryOn(b backend.Backend, old *inherited, in backend.Installed) (shm.Continuity, error) {
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
