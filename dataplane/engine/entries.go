package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// identity is the flow's text in the mirror. Two flows of one name and one
// identity count the same packets, so the second goes on where the first stopped.
func identity(f flow.Flow) string {
	on := f.Interface
	if on == "" {
		on = "any"
	}
	d, _ := f.Direction.MarshalText()
	return fmt.Sprintf("%s on %s: %s", d, on, f.Match)
}

// entryOf describes a flow to readers of the mirror.
func entryOf(f flow.Flow) shm.Entry {
	return shm.Entry{
		Name: f.Name, Kind: "flow", Unit: "packets", Text: identity(f), Labels: f.Labels, Latency: f.Latency,
	}
}

// publish gives the flow its entry in the mirror, settles the total that it
// starts from and hands it to the poller.
func (e *Engine) publish(c *counted, in Installed) error {
	err := e.entry(c, []uint64{in.Cookie}, func(old *shm.Entry) (shm.Continuity, error) { return e.carryOn(c.backend, old, in) })
	if err != nil {
		return err
	}
	c.basis = in.Basis
	c.base = Pair{Packets: c.past.BasePackets, Bytes: c.past.BaseBytes}
	if u, ok := c.backend.(carrier); ok {
		c.stretch = u.Stretch(c.Placed)
	}
	if err := e.show(c); err != nil {
		return err
	}
	e.plan.set(c.handle, c.backend, in.ID, c.base)
	return nil
}

// show tells readers of the mirror what counts the flow now. A flow of interfaces
// that has none is counted by nobody: its value is the last one.
func (e *Engine) show(c *counted) error {
	_, hooks := c.backend.(carrier)
	lost := (hooks || c.layered != nil) && c.source.Device == ""
	return errors.Join(
		e.writer.SetSource(c.handle, sourceText(c.source), c.basis),
		e.writer.SetFlags(c.handle, !lost, lost, false))
}

// sourceText is a source as the mirror shows it: "xdp:eth0/native"; "none" where
// nothing counts.
func sourceText(s dataplane.Source) string {
	if s == (dataplane.Source{}) {
		return "none"
	}
	if s.Device == "" {
		return s.Backend
	}
	return s.Backend + ":" + s.Device + "/" + s.Mode
}

// entry finds or makes the flow's entry; past answers what its total goes on from,
// given what an earlier run counted of the same packets, or nil. That goes on also in an
// entry that has to be made anew, as the place and the labels of one are fixed. cookies
// are those by which an entry is known whose text was cut.
func (e *Engine) entry(c *counted, cookies []uint64, past func(old *shm.Entry) (shm.Continuity, error)) (err error) {
	old, inherited := e.inherited[c.Name]
	if !inherited {
		if c.past, err = past(nil); err != nil {
			return err
		}
		return e.newEntry(c)
	}
	delete(e.inherited, c.Name)
	c.handle = old.Handle
	same := old.Text == identity(c.Flow) || slices.Contains(cookies, old.Continuity.Cookie)
	was := &old
	if !same {
		was = nil
	}
	if c.past, err = past(was); err != nil {
		return err
	}
	if same && old.Latency == c.Latency && maps.Equal(old.Labels, c.Labels) {
		return e.writer.SetContinuity(c.handle, c.past)
	}
	e.plan.clear(old.Handle.Index)
	if err := e.writer.Remove(old.Handle); err != nil {
		return err
	}
	return e.newEntry(c)
}

func (e *Engine) newEntry(c *counted) (err error) {
	entry := entryOf(c.Flow)
	entry.Continuity = c.past
	c.handle, err = e.writer.Add(entry)
	switch {
	case errors.Is(err, shm.ErrFull):
		err = fmt.Errorf("%w: %w", dataplane.ErrFull, err)
	case errors.Is(err, shm.ErrInvalid):
		err = fmt.Errorf("%w: %w", dataplane.ErrInvalid, err)
	}
	return err
}

// carryOn is the past of an entry: its own when its cookie still names the
// counter, which then has missed nothing, else the last published total, and
// one more discontinuity. A counter that was adopted for other reasons than its
// cookie has counted before, and that is not added.
func (e *Engine) carryOn(b Backend, old *shm.Entry, in Installed) (shm.Continuity, error) {
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
	last, err := e.writer.Last(old.Handle)
	if err != nil {
		return shm.Continuity{}, err
	}
	var own Pair
	if in.Adopted {
		own, err = readOne(b, in.ID)
	}
	return shm.Continuity{
		Cookie: in.Cookie, BasePackets: last.Packets - own.Packets, BaseBytes: last.Bytes - own.Bytes,
		Discontinuities: c.Discontinuities + 1,
	}, err
}
