package rdma

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// standIn is a slot of another backend that counts a flow while the flow's device is lost.
type standIn struct {
	from backend.Counters
	base backend.Pair // value of the slot when the device's count ended

	mu   sync.Mutex // guards ids and last, which a read uses without an allocation
	ids  [1]uint32
	last [1]backend.Pair
}

// value returns the stand-in's count since the device was lost. If its slot cannot be read, the last value stands for it.
func (s *standIn) value() backend.Pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now [1]backend.Pair
	if err := s.from.Read(s.ids[:], now[:]); err == nil {
		s.last = now
	}
	return backend.Sub(s.last[0], s.base)
}

// value returns the count of a flow on one device, and the time of its sample. A stand-in is read at this very moment, so its time
// is the latest possible.
func (p *deviceFlow) value() (backend.Pair, int64) {
	if p.standIn != nil {
		return backend.Add(p.earlier, p.standIn.value()), math.MaxInt64
	}
	v, at := p.sample.Load()
	return backend.Add(p.earlier, v), at
}

// StandIn implements backend.HardwareBackend.
func (b *Backend) StandIn(f backend.Placed, ifname string, from backend.Counters, id uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	x, i := b.deviceFlowOn(f, ifname)
	if x == nil || x.devices[i].standIn != nil {
		return fmt.Errorf("flow %q: no device counts it on %s", f.Name, ifname)
	}

	// End the count of the device. Its last sample is the flow's count there.
	lost := x.devices[i]
	ending := []*entry{{Placed: x.Placed, devices: []*deviceFlow{lost}}}
	if err := errors.Join(b.endRules(ending), b.readFinal(ending)); err != nil {
		b.log.Error("ending the count of a device that is lost", "flow", f.Name, "device", lost.dev.name, "err", err)
	}
	b.releaseSlots(ending)

	// Count on from the stand-in's present value.
	s := &standIn{from: from, ids: [1]uint32{id}}
	if err := from.Read(s.ids[:], s.last[:]); err != nil {
		return fmt.Errorf("flow %q: reading its stand-in on %s: %w", f.Name, ifname, err)
	}
	s.base = s.last[0]

	next := &deviceFlow{flow: x, dev: lost.dev, mode: lost.mode, standIn: s}
	next.earlier, _ = lost.value()
	b.replaceDevice(x, i, next)
	return nil
}

// Return implements HardwareBackend.
func (b *Backend) Return(f backend.Placed, above []backend.Placed, ifname string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	x, i := b.deviceFlowOn(f, ifname)
	if x == nil || x.devices[i].standIn == nil {
		return nil
	}
	was := x.devices[i]
	d := was.dev
	if err := d.fits(f.Flow, above); err != nil {
		return err
	}
	p, err := d.prepare(x)
	if err != nil {
		return err
	}

	made := []*entry{{Placed: x.Placed, devices: []*deviceFlow{p}}}
	if err := b.takeOver(p, was, made); err != nil {
		return errors.Join(err, b.undoInstall(made))
	}
	b.replaceDevice(x, i, p)
	return nil
}

// takeOver lets p count on from the value of was right before the rules of p are added. made is p as a list of flows, for the
// steps of Install.
func (b *Backend) takeOver(p, was *deviceFlow, made []*entry) error {
	if err := b.readBaselines(made); err != nil {
		return err
	}
	p.earlier, _ = was.value()
	if err := p.dev.startRules(p); err != nil {
		return err
	}
	return b.startReading(made)
}

// deviceFlowOn returns a flow, and the index in its devices of an interface. The flow is nil if it is not installed there.
func (b *Backend) deviceFlowOn(f backend.Placed, ifname string) (*entry, int) {
	x := b.entryByName[f.Name]
	if x == nil {
		return nil, 0
	}
	i := slices.IndexFunc(x.devices, func(p *deviceFlow) bool { return p.dev.netdev == ifname })
	if i < 0 {
		return nil, 0
	}
	return x, i
}

// replaceDevice replaces device i of x by p. It makes a new entry for that, so a concurrent Read sees the devices from before or
// from after, never a mix.
func (b *Backend) replaceDevice(x *entry, i int, p *deviceFlow) {
	y := &entry{Placed: x.Placed, id: x.id, devices: slices.Clone(x.devices)}
	y.devices[i] = p
	b.entryByName[y.Name] = y
	b.publishID(y)
}
