package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// standIn is a counter of another backend that counts a part while the part's device is lost.
type standIn struct {
	from source
	base Pair // what the counter stood at when the device's count had ended

	mu   sync.Mutex // guards what follows, so that a read allocates nothing
	ids  [1]uint32
	last [1]Pair
}

// value is what the counter has counted in the device's place: as it was last read, where it cannot be read.
func (s *standIn) value() Pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now [1]Pair
	if err := s.from.Read(s.ids[:], now[:]); err == nil {
		s.last = now
	}
	return sub(s.last[0], s.base)
}

// value is what a part has counted, and when its device was sampled: never for one with a
// stand-in, which is read as of now.
func (p *part) value() (Pair, int64) {
	if p.standIn != nil {
		return add(p.before, p.standIn.value()), math.MaxInt64
	}
	v, at := p.cell.load()
	return add(p.before, v), at
}

// Lost implements partial.
func (b *rdmaBackend) Lost(f Placed) (lost []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	living := false
	if x := b.flows[f.Name]; x != nil {
		for _, p := range x.parts {
			switch {
			case p.standIn != nil:
			case p.dev.dead() || errors.Is(p.dev.down, errPortDown):
				lost = append(lost, p.dev.netdev)
			case p.gone() != nil:
				return nil // its rules may still count
			default:
				living = true
			}
		}
	}
	if !living {
		return nil
	}
	return lost
}

// StandIn implements partial.
func (b *rdmaBackend) StandIn(f Placed, ifname string, from source, id uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	x, i := b.partOn(f, ifname)
	if x == nil || x.parts[i].standIn != nil {
		return fmt.Errorf("flow %q: no device counts it on %s", f.Name, ifname)
	}
	p := x.parts[i]
	ending := []*rdmaFlow{{Placed: x.Placed, parts: []*part{p}}}
	if err := errors.Join(b.end(ending), b.last(ending)); err != nil {
		b.log.Error("ending the count of a device that is lost", "flow", f.Name, "device", p.dev.name, "err", err)
	}
	b.release(ending)
	q := &part{flow: x, dev: p.dev, mode: p.mode, standIn: &standIn{from: from, ids: [1]uint32{id}}}
	q.before, _ = p.value()
	if err := from.Read(q.standIn.ids[:], q.standIn.last[:]); err != nil {
		return fmt.Errorf("flow %q: reading what counts it on %s: %w", f.Name, ifname, err)
	}
	q.standIn.base = q.standIn.last[0]
	b.exchange(x, i, q)
	return nil
}

// Return implements partial.
func (b *rdmaBackend) Return(f Placed, above []Placed, ifname string) (missed uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x, i := b.partOn(f, ifname)
	if x == nil || x.parts[i].standIn == nil {
		return 0, nil
	}
	was := x.parts[i]
	d := was.dev
	if err := d.fits(f.Flow, above); err != nil {
		return 0, err
	}
	p, err := d.prepare(x)
	if err != nil {
		return 0, err
	}
	made := []*rdmaFlow{{Placed: x.Placed, parts: []*part{p}}}
	if err = b.baseline(made); err == nil {
		p.before, _ = was.value()
		err = d.start(p)
	}
	if err == nil {
		err = b.begin(made)
	}
	if err != nil {
		return 0, errors.Join(err, b.unmake(made))
	}
	b.exchange(x, i, p)
	after, _ := was.value()
	return after.Packets - p.before.Packets, nil
}

// partOn finds the part of a flow on an interface; nil where it has none.
func (b *rdmaBackend) partOn(f Placed, ifname string) (*rdmaFlow, int) {
	x := b.flows[f.Name]
	if x == nil {
		return nil, 0
	}
	i := slices.IndexFunc(x.parts, func(p *part) bool { return p.dev.netdev == ifname })
	if i < 0 {
		return nil, 0
	}
	return x, i
}

// exchange puts p in the place of part i of x. The poller reads the old parts or the new ones, never some of both.
func (b *rdmaBackend) exchange(x *rdmaFlow, i int, p *part) {
	y := &rdmaFlow{Placed: x.Placed, id: x.id, parts: slices.Clone(x.parts)}
	y.parts[i] = p
	b.flows[y.Name] = y
	b.numbered(y)
}

// FitsBut implements partial.
func (b *rdmaBackend) FitsBut(f flow.Flow, above []Placed, without []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.on(f) {
		if slices.Contains(without, d.netdev) {
			continue
		}
		if err := d.fits(f, above); err != nil {
			return err
		}
	}
	return nil
}

var _ partial = (*rdmaBackend)(nil)

// partial is an overlay that can count a flow on some of its interfaces, while another backend counts
// it on the others. Its methods are called as Install is.
type partial interface {
	placer
	// Lost names the interfaces of an installed flow whose devices count nothing any more, if all the
	// other devices of the flow count it. nil otherwise.
	Lost(f Placed) []string
	// StandIn ends the counting on an interface. From then on the flow's count is what its devices
	// have counted and what the counter id of from counts from now on.
	StandIn(f Placed, ifname string, from source, id uint32) error
	// Return counts on an interface again, in the place of the stand-in. above are the flows that win over
	// f on that interface; all of them are counted there. missed is how many packets the stand-in
	// has counted that the flow's count may lack.
	Return(f Placed, above []Placed, ifname string) (missed uint64, err error)
	// FitsBut is Fits of the interfaces that without does not name.
	FitsBut(f flow.Flow, above []Placed, without []string) error
}

// divider is a carrier that can count a flow on one interface in a counter of its own.
type divider interface {
	carrier
	// Apart counts what the shadows of flows match on an interface in counters of their own, and serves it
	// there, for all of flows or none, or ends that: the shadows' counters count these packets then. It is
	// called after Settle. A counter belongs to its flow until the flow is removed.
	Apart(ctx context.Context, flows []Placed, ifname string, on bool) (ids []uint32, err error)
}
