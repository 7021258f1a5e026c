package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// device is the RDMA device of one interface. Backend.mu guards all fields but the reader's own.
type device struct {
	name, netdev, driver string

	counts    dataplane.Interface
	leaving   bool        // the interface is not counted on any more
	open      nic         // nil while no device is open
	refused   *failure    // why an existing device was not opened; nil if none was tried
	down      error       // why the device does not count now, or nil
	elsewhere bool        // the last search found it at another interface
	stuck     []io.Closer // objects that could not be closed: rules, and the bulks that they use
	stuckOpen bool        // closing the device has not ended the stuck objects
	signal    func()      // Backend.signal
	pools     []*slotPool
	roomy     []*slotPool   // every pool that is not full, and some full ones
	levels    [2]levelTable // by flow.Direction
	reader    *reader
	now       func() int64
	log       *slog.Logger
	stop      context.CancelFunc      // ends reader and events
	running   sync.WaitGroup          // reader and events
	gaveUp    atomic.Pointer[failure] // set when slots could not be read
}

// deviceFlow is a flow on one device.
type deviceFlow struct {
	flow    *entry
	dev     *device
	mode    dataplane.Mode
	matches []ruleMatch
	level   int
	pool    *slotPool // nil: no slot yet
	slot    int
	sample  slotSample
	rules   []io.Closer
	earlier backend.Pair // the count of earlier devices and stand-ins on this interface
	standIn *standIn     // counts in the place of the device; nil: the device counts
}

// working returns nil if the device works, otherwise the reason.
func (d *device) working() error {
	switch {
	case d.down != nil:
		return fmt.Errorf("device %s of %s: %w", d.name, d.netdev, d.down)
	case d.refused != nil:
		return d.refused.err
	case d.open == nil:
		return fmt.Errorf("interface %s: %w", d.netdev, backend.ErrNoDevice)
	}
	return nil
}

// usable returns nil if flows can be installed on the device, otherwise the reason.
func (d *device) usable() error {
	if err := d.working(); err != nil {
		return err
	}
	if f := d.gaveUp.Load(); f != nil {
		return fmt.Errorf("device %s of %s: a moment ago %w: %w", d.name, d.netdev, backend.ErrUnread, f.err)
	}
	return nil
}

// prepare translates a flow to rules and takes a slot for them. Nothing counts yet.
func (d *device) prepare(f *entry) (*deviceFlow, error) {
	p := &deviceFlow{flow: f, dev: d}
	var err error
	if p.mode, p.matches, err = d.planRules(f.Flow); err != nil {
		return nil, err
	}
	for at := 0; at < len(d.roomy); {
		b := d.roomy[at]
		if i, ok := b.take(&p.sample); ok {
			p.pool, p.slot = b, i
			return p, nil
		}
		if b.full() {
			b.roomy = false
			d.roomy = slices.Delete(d.roomy, at, at+1)
		} else {
			at++ // its free slots were not read again yet
		}
	}
	b, err := d.open.newBulk()
	if err != nil {
		return nil, fmt.Errorf("making a counter: %w", err)
	}
	p.pool = newPool(b)
	p.slot, _ = p.pool.take(&p.sample)
	d.pools = append(d.pools, p.pool)
	d.noteRoom(p.pool)
	return p, nil
}

// planRules returns the mode and the rules by which the device would count a flow, without a command to the device.
func (d *device) planRules(f flow.Flow) (dataplane.Mode, []ruleMatch, error) {
	if err := d.usable(); err != nil {
		return "", nil, err
	}
	mode, err := d.open.mode(f.Direction, f.Action)
	if err != nil {
		return "", nil, fmt.Errorf("device %s of %s: %w", d.name, d.netdev, err)
	}
	matches, err := ruleMatches(f.Match, d.open.steeringAPI())
	if err != nil {
		return "", nil, err
	}
	// mlx5 puts a rule that takes the packets of a multicast address behind all others.
	if e := f.Match.Eth; e != nil && e.Dst.Addr[0]&1 != 0 && mode != dataplane.ModeDontTrap && mode != dataplane.ModeDevX {
		return "", nil, refusal("a multicast address", "in mode "+string(mode)+" NICs put the rule behind all others, whatever its priority", useXDP)
	}
	return mode, matches, nil
}

// fits returns nil if the device can count f although the flows in above win over it, otherwise the reason.
func (d *device) fits(f flow.Flow, above []backend.Placed) error {
	if _, _, err := d.planRules(f); err != nil {
		return err
	}
	for _, a := range above {
		if a.Interface != "" && a.Interface != d.netdev {
			continue // it has no packets on this interface
		}
		mode, err := d.open.mode(a.Direction, a.Action)
		if err == nil && mode == dataplane.ModeDontTrap {
			return countedTwice(a.Name)
		}
	}
	return nil
}

// startRules makes the rules of a flow count, after the flows that it wins over have moved to later levels.
func (d *device) startRules(p *deviceFlow) error {
	side := &d.levels[p.flow.Direction]
	pushes, err := side.assign(p)
	if err != nil {
		return err
	}
	for _, m := range pushes {
		if err := m.flow.changeLevel(m.to); err != nil {
			return err
		}
	}
	p.rules, err = p.addRules(p.level)
	return err
}

// changeLevel moves the rules of a flow to another level. It makes the new rules before it removes the old ones.
// Both count in one slot, and the first match ends the search, so no packet is missed or counted twice.
func (p *deviceFlow) changeLevel(level int) error {
	if p.mode == dataplane.ModeDontTrap {
		return p.changeLevelWithGap(level)
	}
	fresh, err := p.addRules(level)
	if err != nil {
		return p.notMoved(level, err)
	}
	old := p.rules
	p.rules, p.level = fresh, level
	return p.dev.removeRules(p, old)
}

// changeLevelWithGap is changeLevel where a packet goes on behind the first match, to be counted again by the other rules. It
// removes the old rules first, which may miss packets.
func (p *deviceFlow) changeLevelWithGap(level int) error {
	p.sample.resets.Add(1) // a discontinuity
	p.dev.signal()

	old := p.rules
	p.rules = nil
	if err := p.dev.removeRules(p, old); err != nil {
		return err
	}
	fresh, err := p.addRules(level)
	if err == nil {
		p.rules, p.level = fresh, level
		return nil
	}

	var back error
	if p.rules, back = p.addRules(p.level); back != nil { // all flows leave the device, until it is opened again
		p.dev.down = fmt.Errorf("%w: of flow %q, which has none now: %w", errRuleStuck, p.flow.Name, back)
	}
	return p.notMoved(level, errors.Join(err, back))
}

func (p *deviceFlow) notMoved(level int, err error) error {
	return fmt.Errorf("moving flow %q to priority %d: %w", p.flow.Name, level, err)
}

func (p *deviceFlow) addRules(level int) (rules []io.Closer, err error) {
	for _, m := range p.matches {
		r, err := p.dev.open.addRule(rule{
			match: m, direction: p.flow.Direction, mode: p.mode, drop: p.flow.Action == flow.Drop, level: level,
		}, p.pool.bulk, p.slot)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("device %s of %s: making a rule: %w", p.dev.name, p.dev.netdev, err), p.dev.removeRules(p, rules))
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// endRules removes the rules of a flow. A device that is gone has lost them already.
func (d *device) endRules(p *deviceFlow) error {
	d.levels[p.flow.Direction].remove(p)
	rules := p.rules
	p.rules = nil
	return d.removeRules(p, rules)
}

// removeRules closes rules of a flow. A rule that a working device does not destroy hides the rules below it, so the
// device counts nothing until it is destroyed.
func (d *device) removeRules(p *deviceFlow, rules []io.Closer) error {
	var errs []error
	for _, r := range rules {
		err := r.Close()
		if err == nil || d.dead() {
			continue
		}
		d.stuck = append(d.stuck, r)
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if err != nil {
		d.down = fmt.Errorf("%w: of flow %q: %w", errRuleStuck, p.flow.Name, err)
		d.signal()
	}
	return err
}

// releaseSlot frees the flow's slot. A pool with one slot is closed.
func (d *device) releaseSlot(p *deviceFlow) {
	b := p.pool
	if b == nil {
		return
	}
	p.pool = nil
	b.free(p.slot, d.now())
	d.noteRoom(b)
	if !b.empty() || b.slots() > 1 && len(d.pools) == 1 && !d.unfit() {
		return // the next flow may use the pool
	}
	d.closePool(b)
}

// noteRoom adds a pool that is not full to roomy.
func (d *device) noteRoom(b *slotPool) {
	if !b.roomy {
		b.roomy = true
		d.roomy = append(d.roomy, b)
	}
}

func (d *device) closePool(b *slotPool) {
	d.roomy = slices.DeleteFunc(d.roomy, func(o *slotPool) bool { return o == b })
	d.reader.remove(b)
	for i := range d.pools {
		if d.pools[i] == b {
			d.pools = append(d.pools[:i], d.pools[i+1:]...)
			break
		}
	}
	b.mu.Lock() // waits for a command
	defer b.mu.Unlock()
	if err := b.Close(); err != nil && !d.dead() {
		d.log.Error("giving a hardware counter back", "device", d.name, "err", err)
		d.stuck = append(d.stuck, b.bulk) // after the rule that uses it
	}
}

// freeStuck tries again to close the stuck objects, in their order.
func (d *device) freeStuck() error {
	var errs []error
	d.stuck = slices.DeleteFunc(d.stuck, func(c io.Closer) bool {
		err := c.Close()
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(errs...)
}

// dead reports whether no verb of the device works any more.
func (d *device) dead() bool { return errors.Is(d.down, backend.ErrDeviceLost) }

// unfit reports whether the device has to be closed and opened again.
func (d *device) unfit() bool { return d.dead() || errors.Is(d.down, errRuleStuck) }

func closeAll(rules []io.Closer) error {
	var errs []error
	for _, r := range rules {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
