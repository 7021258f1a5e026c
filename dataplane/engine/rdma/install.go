package rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Fits implements backend.HardwareBackend.
func (b *Backend) Fits(f flow.Flow, above []backend.Placed, without []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.devicesOf(f)
	if x := b.entryByName[f.Name]; x != nil && !x.isOn(now) {
		return errors.New("its interfaces have changed: it leaves its devices, and returns to the present ones")
	}
	for _, d := range now {
		if slices.Contains(without, d.netdev) {
			continue
		}
		if err := d.fits(f, above); err != nil {
			return err
		}
	}
	return nil
}

// isOn reports whether a flow is installed on exactly these devices.
func (f *entry) isOn(devices []*device) bool {
	return slices.EqualFunc(f.devices, devices, func(p *deviceFlow, d *device) bool { return p.dev == d })
}

// Install implements backend.Backend. It starts all flows at 0, since rules end with the process. Each flow takes several
// commands, so Install looks at ctx between flows.
func (b *Backend) Install(ctx context.Context, flows []backend.Placed) (_ []backend.Installed, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("backend rdma: closed")
	}

	var made []*entry
	inForce := false // some rule
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, b.undoInstall(made))
		if inForce && !errors.Is(err, backend.ErrUndone) {
			err = fmt.Errorf("%w: %w", err, backend.ErrUndone)
		}
	}()
	for _, f := range flows {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("flow %q: %w", f.Name, err)
		}
		x := &entry{Placed: f}
		made = append(made, x) // before prepare, so undoInstall frees the slots of a flow that fails halfway
		if err := b.prepare(x); err != nil {
			return nil, fmt.Errorf("flow %q: %w", f.Name, err)
		}
	}

	// Read the baselines before the rules exist: packets counted before the baseline are lost.
	if err := b.readBaselines(made); err != nil {
		return nil, err
	}
	for _, x := range made {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("flow %q: %w", x.Name, err)
		}
		for _, p := range x.devices {
			if err := p.dev.startRules(p); err != nil {
				return nil, fmt.Errorf("flow %q: %w", x.Name, err)
			}
			inForce = true
		}
	}

	if err := b.startReading(made); err != nil {
		return nil, err
	}
	return b.assignIDs(made), nil
}

// prepare is device.prepare on each device of a flow.
func (b *Backend) prepare(x *entry) error {
	for _, d := range b.devicesOf(x.Flow) {
		p, err := d.prepare(x)
		if err != nil {
			return err
		}
		x.devices = append(x.devices, p)
	}
	if len(x.devices) == 0 {
		return fmt.Errorf("interface %q: %w", x.Interface, backend.ErrNoDevice)
	}
	return nil
}

// readBaselines reads the pools of new flows. A slot may still have the count of an earlier flow, which the new one subtracts.
func (b *Backend) readBaselines(made []*entry) error {
	for _, pool := range byPool(made) {
		counted := pool.flows
		if pool.startsAtZero() {
			continue
		}
		slots := make([]int, len(counted))
		for i, p := range counted {
			slots[i] = p.slot
		}
		b.pace.charge(b.now())
		if err := pool.setBaseline(slots); err != nil {
			return fmt.Errorf("flow %q: device %s: %w", counted[0].flow.Name, counted[0].dev.name, err)
		}
	}
	return nil
}

// startReading hands new pools to the readers. It reads one pool of each device itself, to find out before Install succeeds that
// a device cannot be read.
func (b *Backend) startReading(made []*entry) error {
	tried := make(map[*device]bool)
	for _, pool := range byPool(made) {
		counted := pool.flows
		d := counted[0].dev
		if !tried[d] {
			tried[d] = true
			b.pace.charge(b.now())
			if _, err := pool.sample(b.now); err != nil {
				return fmt.Errorf("flow %q: device %s of %s: reading its counter: %w", counted[0].flow.Name, d.name, d.netdev, err)
			}
		}
		d.reader.add(pool.slotPool)
	}
	return nil
}

// poolFlows is a pool and its flows.
type poolFlows struct {
	*slotPool
	flows []*deviceFlow
}

// byPool groups flows by their pools, in the order of the flows.
func byPool(flows []*entry) []poolFlows {
	var out []poolFlows
	at := make(map[*slotPool]int)
	for _, f := range flows {
		for _, p := range f.devices {
			if p.pool == nil {
				continue
			}
			i, ok := at[p.pool]
			if !ok {
				i = len(out)
				at[p.pool] = i
				out = append(out, poolFlows{slotPool: p.pool})
			}
			out[i].flows = append(out[i].flows, p)
		}
	}
	return out
}

// assignIDs gives the flows IDs and cookies. From then on Read finds them.
func (b *Backend) assignIDs(made []*entry) []backend.Installed {
	out := make([]backend.Installed, len(made))
	for i, x := range made {
		x.id = b.takeID()
		b.publishID(x)
		b.entryByName[x.Name] = x
		b.lastCookie += 2
		out[i] = backend.Installed{
			ID:     x.id,
			Cookie: b.lastCookie,
			Source: x.source(),
			Basis:  string(cmp.Or(b.opts.RDMA.ByteBasis, dataplane.BasisUnknown)),
			Takes:  x.takes(),
		}
	}
	return out
}

// takeID returns a free ID. It prefers the ID of a removed flow.
func (b *Backend) takeID() uint32 {
	if n := len(b.freeIDs); n > 0 {
		id := b.freeIDs[n-1]
		b.freeIDs = b.freeIDs[:n-1]
		return id
	}
	id := b.nextID
	b.nextID++
	return id
}

// publishID makes Read find a flow by its ID. It doubles the slice when it is full. Read may still use the old slice, but then
// it reads no ID beyond the end of it.
func (b *Backend) publishID(x *entry) {
	all := *b.entryByID.Load()
	if int(x.id) >= len(all) {
		more := make([]atomic.Pointer[entry], max(64, 2*len(all)))
		for i := range all {
			more[i].Store(all[i].Load())
		}
		all = more
		b.entryByID.Store(&all)
	}
	all[x.id].Store(x)
}

// Remove implements backend.Backend. It reads the slots once more after their rules are gone.
func (b *Backend) Remove(_ context.Context, flows []backend.Placed) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var gone []*entry
	for _, f := range flows {
		x := b.entryByName[f.Name]
		if x == nil {
			continue
		}
		gone = append(gone, x)
		delete(b.entryByName, f.Name)
		b.freeIDs = append(b.freeIDs, x.id)
		if !x.isOn(b.devicesOf(f.Flow)) {
			b.signal() // the engine may place it on the present devices
		}
	}
	if err := errors.Join(b.endRules(gone), b.readFinal(gone)); err != nil {
		b.log.Error("removing flows from hardware", "err", err)
	}
	b.releaseSlots(gone)
	return nil
}

// undoInstall removes the rules and slots of a failed Install.
func (b *Backend) undoInstall(flows []*entry) error {
	err := b.endRules(flows)
	b.releaseSlots(flows)
	return err
}

// endRules removes the rules of flows. It goes on after an error: a stuck rule ends when its device is closed.
func (b *Backend) endRules(flows []*entry) error {
	var errs []error
	for _, x := range flows {
		for _, p := range x.devices {
			if err := p.dev.endRules(p); err != nil {
				errs = append(errs, fmt.Errorf("flow %q: ending its rules: %w", x.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// readFinal takes the final samples of flows. Remove the rules first, or the samples may lack packets.
func (b *Backend) readFinal(flows []*entry) error {
	var errs []error
	for _, pool := range byPool(flows) {
		counted := pool.flows
		if counted[0].dev.dead() {
			continue
		}
		b.pace.charge(b.now())
		if err := pool.sampleFinal(b.now); err != nil {
			errs = append(errs, fmt.Errorf("flow %q: reading its counter at the end: %w", counted[0].flow.Name, err))
		}
	}
	return errors.Join(errs...)
}

// releaseSlots frees the slots of flows.
func (b *Backend) releaseSlots(flows []*entry) {
	for _, x := range flows {
		for _, p := range x.devices {
			p.dev.releaseSlot(p)
		}
	}
}

// Rename implements backend.HardwareBackend.
func (b *Backend) Rename(was, now backend.Placed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.entryByName[was.Name]
	if x == nil {
		return
	}

	delete(b.entryByName, was.Name)
	y := &entry{Placed: now, id: x.id, devices: x.devices}
	for _, p := range y.devices {
		p.flow = y
	}
	b.entryByName[now.Name] = y
	b.publishID(y)
}
