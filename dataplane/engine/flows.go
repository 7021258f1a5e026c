package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// counted is a flow that is counted now.
type counted struct {
	Placed
	handle   shm.Handle
	backend  Backend
	rejected []dataplane.Rejection
	source   dataplane.Source
	basis    string
}

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

// AddFlows implements dataplane.Service.
func (e *Engine) AddFlows(ctx context.Context, flows ...flow.Flow) ([]dataplane.Placement, error) {
	e.ctl.Lock()
	defer e.ctl.Unlock()
	if e.closed {
		return nil, dataplane.ErrClosed
	}
	out, err := e.add(ctx, flows)
	if err != nil {
		return nil, err
	}
	for _, p := range out {
		e.log.Info("flow added", "flow", p.Flow.Name, "backend", p.Source.Backend, "device", p.Source.Device, "mode", p.Source.Mode)
		e.events.send(dataplane.FlowAdded, p.Flow.Name, identity(p.Flow))
	}
	return out, nil
}

// add installs all of flows or none. It is called with ctl held.
func (e *Engine) add(ctx context.Context, flows []flow.Flow) (_ []dataplane.Placement, err error) {
	placed, err := e.admit(flows)
	if err != nil || len(placed) == 0 {
		return nil, err
	}
	backend, installed, rejected, err := e.place(ctx, placed)
	if err != nil {
		return nil, err
	}
	var done []*counted
	defer func() {
		// What a start that failed has inherited must be there for the next one.
		if err == nil || e.inherited != nil {
			return
		}
		for _, c := range done {
			e.plan.clear(c.handle.Index)
			err = errors.Join(err, e.writer.Remove(c.handle))
		}
		err = errors.Join(err, backend.Remove(context.WithoutCancel(ctx), placed))
	}()
	for i, p := range placed {
		c := &counted{Placed: p, backend: backend, rejected: rejected, source: installed[i].Source}
		err := e.publish(c, installed[i])
		if c.handle != (shm.Handle{}) { // it has an entry, finished or not
			done = append(done, c)
		}
		if err != nil {
			return nil, fmt.Errorf("flow %q: %w", p.Name, err)
		}
	}
	out := make([]dataplane.Placement, len(done))
	for i, c := range done {
		e.flows[c.Name] = c
		out[i] = c.placement()
	}
	e.order += uint32(len(placed))
	return out, nil
}

// admit checks flows against the rules and against each other.
func (e *Engine) admit(flows []flow.Flow) ([]Placed, error) {
	var errs []error
	names := make(map[string]bool, len(flows))
	out := make([]Placed, len(flows))
	for i, f := range flows {
		if err := f.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", dataplane.ErrInvalid, err))
		}
		if _, there := e.flows[f.Name]; there || names[f.Name] {
			errs = append(errs, fmt.Errorf("flow %q: %w; remove it first or choose another name", f.Name, dataplane.ErrExists))
		}
		if f.Interface != "" && !slices.ContainsFunc(e.cfg.Interfaces, func(i dataplane.Interface) bool { return i.Name == f.Interface }) {
			errs = append(errs, fmt.Errorf("flow %q: interface %s is not one of the instance's; add it under interfaces: %w",
				f.Name, f.Interface, dataplane.ErrInvalid))
		}
		names[f.Name] = true
		out[i] = Placed{Flow: f, Order: e.order + uint32(i)}
	}
	return out, errors.Join(errs...)
}

// place asks the backends in order and keeps each refusal.
func (e *Engine) place(ctx context.Context, flows []Placed) (Backend, []Installed, []dataplane.Rejection, error) {
	var rejected []dataplane.Rejection
	var errs []error
	for _, b := range e.backends {
		installed, err := b.Install(ctx, flows)
		if err == nil {
			return b, installed, rejected, nil
		}
		rejected = append(rejected, dataplane.Rejection{Backend: b.Name(), Reason: err.Error()})
		errs = append(errs, fmt.Errorf("%s: %w", b.Name(), err))
	}
	return nil, nil, nil, fmt.Errorf("placing %s: %w: %w", describe(flows), dataplane.ErrUnplaced, errors.Join(errs...))
}

func describe(flows []Placed) string {
	if len(flows) == 1 {
		return fmt.Sprintf("flow %q", flows[0].Name)
	}
	return fmt.Sprintf("%d flows (%q, …)", len(flows), flows[0].Name)
}

// publish gives the flow its entry in the mirror, settles the total that it
// starts from and hands it to the poller.
func (e *Engine) publish(c *counted, in Installed) error {
	h, total, err := e.entry(c.Flow, in)
	if err != nil {
		return err
	}
	c.handle = h
	c.basis = in.Basis
	if err := e.show(c); err != nil {
		return err
	}
	e.plan.set(h, c.backend, in.ID, total)
	return nil
}

// show tells readers of the mirror what counts the flow now. An xdp flow without
// an interface is counted by nobody: its value is the last one.
func (e *Engine) show(c *counted) error {
	counts := c.source.Backend != "xdp" || c.source.Device != ""
	return errors.Join(
		e.writer.SetSource(c.handle, sourceText(c.source), c.basis),
		e.writer.SetFlags(c.handle, counts, !counts, false))
}

// sourceText is a source as the mirror shows it: "xdp:eth0/native".
func sourceText(s dataplane.Source) string {
	if s.Device == "" {
		return s.Backend
	}
	return s.Backend + ":" + s.Device + "/" + s.Mode
}

// entry finds or makes the flow's entry, and answers what its total had reached
// before this source. What an earlier run counted of the same packets goes on, also in an
// entry that has to be made anew, as the place and the labels of one are fixed.
func (e *Engine) entry(f flow.Flow, in Installed) (shm.Handle, Pair, error) {
	past := shm.Continuity{Cookie: in.Cookie}
	if old, ok := e.inherited[f.Name]; ok {
		delete(e.inherited, f.Name)
		same := old.Text == identity(f) || old.Continuity.Cookie == in.Cookie // a long text is cut
		if same {
			var err error
			if past, err = e.carryOn(old, in); err != nil {
				return old.Handle, Pair{}, err
			}
		}
		base := Pair{Packets: past.BasePackets, Bytes: past.BaseBytes}
		if same && old.Latency == f.Latency && maps.Equal(old.Labels, f.Labels) {
			return old.Handle, base, e.writer.SetContinuity(old.Handle, past)
		}
		e.plan.clear(old.Handle.Index)
		if err := e.writer.Remove(old.Handle); err != nil {
			return old.Handle, Pair{}, err
		}
	}
	entry := entryOf(f)
	entry.Continuity = past
	h, err := e.writer.Add(entry)
	switch {
	case errors.Is(err, shm.ErrFull):
		err = fmt.Errorf("%w: %w", dataplane.ErrFull, err)
	case errors.Is(err, shm.ErrInvalid):
		err = fmt.Errorf("%w: %w", dataplane.ErrInvalid, err)
	}
	return h, Pair{Packets: past.BasePackets, Bytes: past.BaseBytes}, err
}

// carryOn is the past of an entry: its own when its cookie still names the
// counter, which then has missed nothing, else the last published total, and
// one more discontinuity.
func (e *Engine) carryOn(old shm.Entry, in Installed) (shm.Continuity, error) {
	c := old.Continuity
	if c.Cookie == in.Cookie {
		if in.Gap {
			c.Discontinuities++
		}
		return c, nil
	}
	last, err := e.writer.Last(old.Handle)
	return shm.Continuity{
		Cookie: in.Cookie, BasePackets: last.Packets, BaseBytes: last.Bytes, Discontinuities: c.Discontinuities + 1,
	}, err
}

// RemoveFlows implements dataplane.Service.
func (e *Engine) RemoveFlows(ctx context.Context, names ...string) error {
	e.ctl.Lock()
	defer e.ctl.Unlock()
	if e.closed {
		return dataplane.ErrClosed
	}
	var errs []error
	gone := make(map[Backend][]Placed)
	seen := make(map[string]bool, len(names))
	for _, n := range names {
		c, ok := e.flows[n]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("flow %q: %w", n, dataplane.ErrNotFound))
		case !seen[n]:
			gone[c.backend] = append(gone[c.backend], c.Placed)
		}
		seen[n] = true
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// The backend first: a flow that it does not let go of stays one, and one
	// that was killed in between goes on in the mirror where it was. Its source is read until it is
	// forgotten, and serves nobody else before: both happen under ctl.
	for b, flows := range gone {
		if err := b.Remove(ctx, flows); err != nil {
			return fmt.Errorf("removing %s from %s: %w", describe(flows), b.Name(), err)
		}
		for _, f := range flows {
			errs = append(errs, e.forget(f.Name))
		}
	}
	return errors.Join(errs...)
}

// forget takes a flow out of the plan and the mirror.
func (e *Engine) forget(name string) error {
	c := e.flows[name]
	e.plan.clear(c.handle.Index)
	delete(e.flows, name)
	e.log.Info("flow removed", "flow", name)
	e.events.send(dataplane.FlowRemoved, name, identity(c.Flow))
	if err := e.writer.Remove(c.handle); err != nil {
		return fmt.Errorf("flow %q: removing its counter: %w", name, err)
	}
	return nil
}

// Placements implements dataplane.Service.
func (e *Engine) Placements(context.Context) ([]dataplane.Placement, error) {
	e.ctl.Lock()
	defer e.ctl.Unlock()
	if e.closed {
		return nil, dataplane.ErrClosed
	}
	out := make([]dataplane.Placement, 0, len(e.flows))
	for _, c := range e.flows {
		out = append(out, c.placement())
	}
	slices.SortFunc(out, func(a, b dataplane.Placement) int { return cmp.Compare(a.Flow.Name, b.Flow.Name) })
	return out, nil
}

func (c *counted) placement() dataplane.Placement {
	return dataplane.Placement{
		Flow: c.Flow, Source: c.source, Rejected: c.rejected,
		Counter: dataplane.Handle{Index: c.handle.Index, Generation: c.handle.Generation},
	}
}
