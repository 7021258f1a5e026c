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
	var err error
	c.handle, c.past, err = e.entry(entryOf(c.Flow), []uint64{in.Cookie}, func(old *shm.Entry) (shm.Continuity, error) {
		return e.carryOn(c.backend, old, in)
	})
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

// entry finds or makes the entry of a counter in the mirror and answers it with what its total
// goes on from: past is given what an earlier run counted of the same, or nil. That goes on
// also in an entry that has to be made anew, as the place and the labels of one are
// fixed. cookies are those by which an entry is known whose text was cut.
func (e *Engine) entry(want shm.Entry, cookies []uint64, past func(old *shm.Entry) (shm.Continuity, error)) (shm.Handle, shm.Continuity, error) {
	old, inherited := e.inherited[want.Name]
	if !inherited {
		c, err := past(nil)
		if err != nil {
			return shm.Handle{}, c, err
		}
		want.Continuity = c
		h, err := e.newEntry(want)
		return h, c, err
	}
	delete(e.inherited, want.Name)
	same := old.Kind == want.Kind && (old.Text == want.Text || slices.Contains(cookies, old.Continuity.Cookie))
	was := &old
	if !same {
		was = nil
	}
	c, err := past(was)
	if err != nil {
		return old.Handle, c, err
	}
	if same && old.Latency == want.Latency && maps.Equal(old.Labels, want.Labels) {
		return old.Handle, c, e.writer.SetContinuity(old.Handle, c)
	}
	e.plan.clear(old.Handle.Index)
	if err := e.writer.Remove(old.Handle); err != nil {
		return old.Handle, c, err
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

// lastTotal is the last value of an entry that was published. An entry that was made in
// another's place by a start that failed has published none, and carries the other's.
func (e *Engine) lastTotal(old *shm.Entry) (Pair, error) {
	last, err := e.writer.Last(old.Handle)
	if last.SampledAt == 0 {
		return Pair{Packets: old.Continuity.BasePackets, Bytes: old.Continuity.BaseBytes}, err
	}
	return Pair{Packets: last.Packets, Bytes: last.Bytes}, err
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
	last, err := e.lastTotal(old)
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
