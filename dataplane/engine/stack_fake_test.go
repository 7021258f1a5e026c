package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
)

// world is a host with one interface: a device with flow tables before XDP's hook.
// Packets pass between calls of the engine, never during one.
type world struct {
	over  *fakeHardware
	under *fakeSoftware
}

// newPickyWorld returns a world whose hardware cannot express one flow in six, and refuses one in eleven of the others.
func newPickyWorld(exclusive bool) *world {
	w := &world{over: newFakeHardware(exclusive), under: newFakeSoftware()}
	w.over.cannot = func(f flow.Flow) error {
		if len(f.Match.String())%6 == 0 {
			return errors.New("inexpressible")
		}
		return nil
	}
	w.over.refuse = func(f flow.Flow) error {
		if len(f.Match.String())%11 == 0 {
			return errors.New("no memory")
		}
		return nil
	}
	return w
}

func (w *world) send(p oracle.Packet) {
	w.over.see(p)
	w.under.see(p)
}

// table is a set of flows with counters.
type table struct {
	flows map[string]backend.Placed
	ids   map[string]uint32
	pairs []backend.Pair
	// called is called by each method that may take its time in a real backend; nil: not.
	called func()
}

func (t *table) call() {
	if t.called != nil {
		t.called()
	}
}

func newTable() table {
	return table{flows: make(map[string]backend.Placed), ids: make(map[string]uint32)}
}

// ordered are the flows as they win.
func (t *table) ordered() []backend.Placed {
	return slices.SortedFunc(maps.Values(t.flows), func(a, b backend.Placed) int { return int(a.Order) - int(b.Order) })
}

func (t *table) put(f backend.Placed) uint32 {
	id := uint32(len(t.pairs))
	t.flows[f.Name], t.ids[f.Name] = f, id
	t.pairs = append(t.pairs, backend.Pair{})
	return id
}

func (t *table) count(name string, p oracle.Packet) {
	c := &t.pairs[t.ids[name]]
	c.Packets++
	c.Bytes += uint64(len(p.Frame))
}

// first counts the packet by the flow that the linear matcher names.
func (t *table) first(p oracle.Packet) {
	all := t.ordered()
	flows := make([]flow.Flow, len(all))
	for i, f := range all {
		flows[i] = f.Flow
	}
	if i, ok := oracle.New(flows).Match(p); ok {
		t.count(flows[i].Name, p)
	}
}

// fakeHardware is a device: exclusive as devx is, or else one whose matches fall through.
type fakeHardware struct {
	table
	exclusive bool
	takes     bool                  // backend.Installed.Takes
	cannot    func(flow.Flow) error // matches that its specs cannot express
	refuse    func(flow.Flow) error // refusals of Install
	down      error
	gone      map[string]error
	basis     string // backend.Installed.Basis; "" is l2
	runs      uint64
	resets    uint64
	during    func() // packets that pass while flows are installed
	broken    string // an order that a device must never be in
}

func newFakeHardware(exclusive bool) *fakeHardware {
	return &fakeHardware{table: newTable(), exclusive: exclusive, gone: make(map[string]error), runs: rand.Uint64() >> 1}
}

var errLost = errors.New("device lost")

// lose takes the device away, with its flows.
func (o *fakeHardware) lose() {
	o.down = errLost
	for name := range o.flows {
		o.gone[name] = errLost
	}
}

func (o *fakeHardware) see(p oracle.Packet) {
	switch {
	case o.down != nil:
	case o.exclusive:
		t := table{flows: make(map[string]backend.Placed), ids: o.ids, pairs: o.pairs}
		for name, f := range o.flows {
			if o.gone[name] == nil {
				t.flows[name] = f
			}
		}
		t.first(p)
	default:
		for name, f := range o.flows {
			if _, ok := oracle.New([]flow.Flow{f.Flow}).Match(p); ok && o.gone[name] == nil {
				o.count(name, p)
			}
		}
	}
}

func (o *fakeHardware) Absent() error                { return nil }
func (o *fakeHardware) Lost(backend.Placed) []string { return nil }

func (o *fakeHardware) StandIn(f backend.Placed, ifname string, from backend.Counters, id uint32) error {
	o.call()
	return fmt.Errorf("flow %q: %s has one device", f.Name, ifname)
}

func (o *fakeHardware) Return(f backend.Placed, above []backend.Placed, ifname string) error {
	o.call()
	return fmt.Errorf("flow %q: %s has one device", f.Name, ifname)
}

func (o *fakeHardware) Fits(f flow.Flow, above []backend.Placed, _ []string) error {
	if o.down != nil {
		return o.down
	}
	if len(above) > 0 && !o.exclusive {
		return fmt.Errorf("flow %q wins over it, and a match falls through", above[0].Name)
	}
	if o.cannot != nil {
		return o.cannot(f)
	}
	return nil
}

func (o *fakeHardware) Resets(backend.Placed) uint64 { return o.resets }
func (o *fakeHardware) Gone() map[string]error       { return o.gone }
func (o *fakeHardware) Name() string                 { return "rdma" }

func (o *fakeHardware) Install(_ context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	o.call()
	var out []backend.Installed
	if o.during != nil {
		o.during()
	}
	for _, f := range flows {
		if o.refuse != nil && o.refuse(f.Flow) != nil {
			return nil, o.refuse(f.Flow)
		}
	}
	for _, f := range flows {
		if _, there := o.flows[f.Name]; there {
			o.broken = f.Name + " was installed twice"
		}
		o.runs++
		out = append(out, backend.Installed{ID: o.put(f), Cookie: o.runs, Basis: cmp.Or(o.basis, "l2"), Source: o.Source(f), Takes: o.takes})
	}
	return out, nil
}

func (o *fakeHardware) Remove(_ context.Context, flows []backend.Placed) error {
	o.call()
	for _, f := range flows {
		delete(o.flows, f.Name)
		delete(o.gone, f.Name)
	}
	return nil
}

func (o *fakeHardware) Read(ids []uint32, dst []backend.Pair) error {
	return o.ReadTimed(ids, dst, nil)
}

func (o *fakeHardware) ReadTimed(ids []uint32, dst []backend.Pair, at []int64) error {
	for i, id := range ids {
		dst[i] = o.pairs[id]
		if at != nil {
			at[i] = 1 << 62
		}
	}
	return nil
}

func (o *fakeHardware) RemoveStale(context.Context) error { return nil }
func (o *fakeHardware) Source(backend.Placed) dataplane.Source {
	return dataplane.Source{Backend: "rdma", Devices: []dataplane.Device{{Backend: "rdma", Name: "swnic0", Mode: "devx"}}}
}
func (o *fakeHardware) Conditions() []dataplane.Condition { return nil }
func (o *fakeHardware) Changed() <-chan struct{}          { return nil }
func (o *fakeHardware) Close(bool) error                  { return nil }

// fakeSoftware is XDP: rules that win, and a hook that is held while a flow needs it.
type fakeSoftware struct {
	table
	served   map[string]bool
	attached bool
	full     func(flow.Flow) error // no room for the shadow
	busy     error                 // the hook is another's
	stuck    error                 // rules cannot be removed
	clock    backend.Moment
	since    backend.Moment    // of the hook
	lost     backend.Moment    // when the last outage ended
	open     bool              // an outage is under way
	left     map[string]uint32 // by owner: counters of flows that count anew, until that is decided
}

func newFakeSoftware() *fakeSoftware {
	return &fakeSoftware{table: newTable(), served: make(map[string]bool), left: make(map[string]uint32)}
}

func (u *fakeSoftware) see(p oracle.Packet) {
	if u.attached {
		u.first(p)
	}
}

func (u *fakeSoftware) Name() string { return "xdp" }

func (u *fakeSoftware) AddShadows(_ context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	u.call()
	out := make([]backend.Installed, len(flows))
	for _, f := range flows {
		if u.full != nil && u.full(f.Flow) != nil {
			return nil, u.full(f.Flow)
		}
	}
	for i, f := range flows {
		id, there := u.ids[f.Name]
		if there {
			u.flows[f.Name] = f
		} else {
			id = u.put(f)
		}
		out[i] = backend.Installed{ID: id, Cookie: 1<<50 + uint64(id), Basis: "l2", Source: u.Source(f), Adopted: there}
	}
	return out, nil
}

func (u *fakeSoftware) Install(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	u.call()
	out, err := u.AddShadows(ctx, flows)
	if err == nil {
		err = u.SetActive(ctx, flows, true)
	}
	return out, err
}

func (u *fakeSoftware) SetActive(_ context.Context, flows []backend.Placed, on bool) error {
	u.call()
	if on && u.busy != nil {
		return u.busy
	}
	for _, f := range flows {
		u.served[f.Name] = on
	}
	u.trim()
	return nil
}

func (u *fakeSoftware) trim() {
	need := false
	for name := range u.flows {
		need = need || u.served[name]
	}
	switch {
	case need && !u.attached:
		u.take()
	case !need:
		u.attached, u.open = false, false
	}
}

// take takes the hook, which ends an outage.
func (u *fakeSoftware) take() {
	u.clock++
	if u.open {
		u.lost = u.clock
	}
	u.since, u.attached, u.open = u.clock, true, false
}

// lose loses the hook.
func (u *fakeSoftware) lose() { u.attached, u.open = false, true }

// loseOne loses one of several hooks.
func (u *fakeSoftware) loseOne() { u.open = true }

// leave ends an outage: the interface of a lost hook goes.
func (u *fakeSoftware) leave() {
	u.clock++
	u.lost, u.open = u.clock, false
}

func (u *fakeSoftware) CountApart(_ context.Context, flows []backend.Placed, ifname string, _ bool) ([]uint32, error) {
	u.call()
	return nil, fmt.Errorf("%s: there is one interface", backend.Describe(flows))
}

func (u *fakeSoftware) Now() backend.Moment { return u.clock }

func (u *fakeSoftware) Outage(backend.Placed) (last backend.Moment, open bool) { return u.lost, u.open }

func (u *fakeSoftware) Rely(backend.Placed) { u.open = u.open || !u.attached }

func (u *fakeSoftware) Look() {}

func (u *fakeSoftware) CompleteSince(backend.Placed) (since backend.Moment, ok bool) {
	return u.since, u.attached && !u.open
}

func (u *fakeSoftware) Remove(_ context.Context, flows []backend.Placed) error {
	u.call()
	if u.stuck != nil {
		return u.stuck
	}
	for _, f := range flows {
		delete(u.flows, f.Name)
		delete(u.ids, f.Name)
		delete(u.served, f.Name)
	}
	u.trim()
	return nil
}

func (u *fakeSoftware) Read(ids []uint32, dst []backend.Pair) error {
	for i, id := range ids {
		dst[i] = u.pairs[id]
	}
	return nil
}

func (u *fakeSoftware) RemoveStale(context.Context) error { return nil }
func (u *fakeSoftware) Source(backend.Placed) dataplane.Source {
	return dataplane.Source{Backend: "xdp", Devices: []dataplane.Device{{Backend: "xdp", Name: "v0", Mode: "native"}}}
}
func (u *fakeSoftware) Conditions() []dataplane.Condition { return nil }
func (u *fakeSoftware) Changed() <-chan struct{}          { return nil }
func (u *fakeSoftware) Close(bool) error                  { return nil }
