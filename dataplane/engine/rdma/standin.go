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

// value returns the stand-in's count since the device was lost. A slot that cannot be read has its last value.
func (s *standIn) value() backend.Pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now [1]backend.Pair
	if err := s.from.Read(s.ids[:], now[:]); err == nil {
		s.last = now
	}
	return backend.Sub(s.last[0], s.base)
}

// value returns the count of a flow on one device and the time of its sample. The time of a stand-in is the latest
// possible, because it is read at once.
func (p *deviceFlow) value() (backend.Pair, int64) {
	if p.standIn != nil {
		return backend.Add(p.earlier, p.standIn.value()), math.MaxInt64
	}
	v, at := p.sample.Load()
	return backend.Add(p.earlier, v), at
}

// StandIn implements HardwareBackend.
func (b *Backend) StandIn(f backend.Placed, ifname string, from backend.Counters, id uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	x, i := b.deviceFlowOn(f, ifname)
	if x == nil || x.devices[i].standIn != nil {
		return fmt.Errorf("flow %q: no device counts it on %s", f.Name, ifname)
	}

	// End the device's count. Its last sample is what the flow has counted there.
	lost := x.devices[i]
	ending := []*entry{{Placed: x.Placed, devices: []*deviceFlow{lost}}}
	if err := errors.Join(b.endRules(ending), b.readFinal(ending)); err != nil {
		b.log.Error("ending the count of a device that is lost", "flow", f.Name, "device", lost.dev.name, "err", err)
	}
	b.releaseSlots(ending)

	// Go on from the stand-in's present value.
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
func (b *Backend) Return(f backend.Placed, above []backend.Placed, ifname string) (missed uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x, i := b.deviceFlowOn(f, ifname)
	if x == nil || x.devices[i].standIn == nil {
		return 0, nil
	}
	was := x.devices[i]
	d := was.dev
	if err := d.fits(f.Flow, above); err != nil {
		return 0, err
	}
	p, err := d.prepare(x)
	if err != nil {
		return 0, err
	}

	made := []*entry{{Placed: x.Placed, devices: []*deviceFlow{p}}}
	if err := b.takeOver(p, was, made); err != nil {
		return 0, errors.Join(err, b.undoInstall(made))
	}
	b.replaceDevice(x, i, p)

	// The stand-in went on counting while the rules were made. Its share since then is what the device may have missed.
	after, _ := was.value()
	return after.Packets - p.earlier.Packets, nil
}

// takeOver makes the rules of p count, from the count that was has reached just before. made is the entry of p.
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

// deviceFlowOn returns a flow and the position of one of its interfaces. The flow is nil if it has no such
// interface.
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

// replaceDevice puts p in the place of position i of x. Read sees all devices from before the call, or all from
// after it.
func (b *Backend) replaceDevice(x *entry, i int, p *deviceFlow) {
	y := &entry{Placed: x.Placed, id: x.id, devices: slices.Clone(x.devices)}
	y.devices[i] = p
	b.entryByName[y.Name] = y
	b.publishID(y)
}
