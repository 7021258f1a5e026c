package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// rdmaDevice is the RDMA device of one interface. All fields but the reader's are
// guarded by the backend's lock.
type rdmaDevice struct {
	name, netdev, driver string

	nic     nic         // nil while there is none
	refused *failure    // why one that is there was not opened; nil where none was tried
	down    error       // why flows are not counted here now; nil when they are
	stuck   []io.Closer // what could not be closed: rules, and counters that they hold
	held    bool        // and that closing the device did not end either
	signal  func()      // the backend's
	banks   []*hwBank
	roomy   []*hwBank // of banks: all that are not full, and some that are
	sides   [2]side   // by flow.Direction
	reader  *hwReader
	now     func() int64
	log     *slog.Logger
	stop    context.CancelFunc      // ends reader and events
	running sync.WaitGroup          // reader and events
	gaveUp  atomic.Pointer[failure] // counters that could not be read
}

// part is a flow on one device.
type part struct {
	flow    *rdmaFlow
	dev     *rdmaDevice
	mode    hwMode
	matches []hwMatch
	level   int
	bank    *hwBank // nil: no counter yet
	slot    int
	cell    cell
	rules   []io.Closer
	before  backend.Pair // counted by earlier parts of the flow on this interface
	standIn *standIn     // counts in the place of the device; nil: the device counts
}

// there is nil when the device works.
func (d *rdmaDevice) there() error {
	switch {
	case d.down != nil:
		return fmt.Errorf("device %s of %s: %w", d.name, d.netdev, d.down)
	case d.refused != nil:
		return d.refused.err
	case d.nic == nil:
		return fmt.Errorf("interface %s: %w", d.netdev, backend.ErrNoDevice)
	}
	return nil
}

// usable is nil when flows can be installed on the device.
func (d *rdmaDevice) usable() error {
	if err := d.there(); err != nil {
		return err
	}
	if f := d.gaveUp.Load(); f != nil {
		return fmt.Errorf("device %s of %s: a moment ago %w: %w", d.name, d.netdev, backend.ErrUnread, f.err)
	}
	return nil
}

// prepare makes a flow's part: its rules, and a counter for them. Nothing counts yet.
func (d *rdmaDevice) prepare(f *rdmaFlow) (*part, error) {
	p := &part{flow: f, dev: d}
	var err error
	if p.mode, p.matches, err = d.plan(f.Flow); err != nil {
		return nil, err
	}
	for at := 0; at < len(d.roomy); {
		b := d.roomy[at]
		if i, ok := b.take(&p.cell); ok {
			p.bank, p.slot = b, i
			return p, nil
		}
		if b.full() {
			b.roomy = false
			d.roomy = slices.Delete(d.roomy, at, at+1)
		} else {
			at++ // its free slots cool down
		}
	}
	b, err := d.nic.newBank()
	if err != nil {
		return nil, fmt.Errorf("making a counter: %w", err)
	}
	p.bank = newHWBank(b)
	p.slot, _ = p.bank.take(&p.cell)
	d.banks = append(d.banks, p.bank)
	d.hasRoom(p.bank)
	return p, nil
}

// plan says how the device would count a flow, without asking it.
func (d *rdmaDevice) plan(f flow.Flow) (hwMode, []hwMatch, error) {
	if err := d.usable(); err != nil {
		return "", nil, err
	}
	mode, err := d.nic.mode(f.Direction, f.Action)
	if err != nil {
		return "", nil, fmt.Errorf("device %s of %s: %w", d.name, d.netdev, err)
	}
	matches, err := hwMatches(f.Match, d.nic.road())
	if err != nil {
		return "", nil, err
	}
	// mlx5 puts rules for a multicast address, when they take the packet, behind all others.
	if e := f.Match.Eth; e != nil && e.Dst.Addr[0]&1 != 0 && mode != modeDontTrap && mode != modeDevX {
		return "", nil, refusal("a multicast address", "in mode "+string(mode)+" NICs put the rule behind all others, whatever its priority", useXDP)
	}
	return mode, matches, nil
}

// fits says whether the device keeps f out of the way of the flows that win over it.
func (d *rdmaDevice) fits(f flow.Flow, above []backend.Placed) error {
	if _, _, err := d.plan(f); err != nil {
		return err
	}
	for _, a := range above {
		if a.Interface != "" && a.Interface != d.netdev {
			continue // it wins elsewhere
		}
		mode, err := d.nic.mode(a.Direction, a.Action)
		if err == nil && mode == modeDontTrap {
			return twice(a.Name)
		}
	}
	return nil
}

// start makes the part's rules count, after those in their way have gone to later levels.
func (d *rdmaDevice) start(p *part) error {
	side := &d.sides[p.flow.Direction]
	pushes, err := side.place(p)
	if err != nil {
		return err
	}
	for _, m := range pushes {
		if err := m.part.move(m.to); err != nil {
			return err
		}
	}
	p.rules, err = p.addRules(p.level)
	return err
}

// move puts the rules of a part on another level, the new ones before the old ones are gone:
// both count in one counter, and the first match ends the search, so no packet is missed or
// counted twice.
func (p *part) move(level int) error {
	fresh, err := p.addRules(level)
	if err != nil {
		return fmt.Errorf("moving flow %q to priority %d: %w", p.flow.Name, level, err)
	}
	old := p.rules
	p.rules, p.level = fresh, level
	return p.dev.takeOut(p, old)
}

func (p *part) addRules(level int) (rules []io.Closer, err error) {
	for _, m := range p.matches {
		r, err := p.dev.nic.addRule(hwRule{
			match: m, direction: p.flow.Direction, mode: p.mode, drop: p.flow.Action == flow.Drop, level: level,
		}, p.bank.bank, p.slot)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("device %s of %s: making a rule: %w", p.dev.name, p.dev.netdev, err), p.dev.takeOut(p, rules))
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// end takes the part's rules out. On a device that is gone there are none any more.
func (d *rdmaDevice) end(p *part) error {
	d.sides[p.flow.Direction].remove(p)
	rules := p.rules
	p.rules = nil
	return d.takeOut(p, rules)
}

// takeOut closes rules of a part. One that a living device does not let go of is in the
// way of those below it: the device counts nothing any more until it is out.
func (d *rdmaDevice) takeOut(p *part, rules []io.Closer) error {
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

// release gives the part's counter back. A bank of one flow goes with it.
func (d *rdmaDevice) release(p *part) {
	b := p.bank
	if b == nil {
		return
	}
	p.bank = nil
	b.free(p.slot, d.now())
	d.hasRoom(b)
	if !b.empty() || b.slots() > 1 && len(d.banks) == 1 && !d.unfit() {
		return // a bulk that may serve the next flow
	}
	d.dropBank(b)
}

// hasRoom notes a bank that is not full.
func (d *rdmaDevice) hasRoom(b *hwBank) {
	if !b.roomy {
		b.roomy = true
		d.roomy = append(d.roomy, b)
	}
}

func (d *rdmaDevice) dropBank(b *hwBank) {
	d.roomy = slices.DeleteFunc(d.roomy, func(o *hwBank) bool { return o == b })
	d.reader.remove(b)
	for i := range d.banks {
		if d.banks[i] == b {
			d.banks = append(d.banks[:i], d.banks[i+1:]...)
			break
		}
	}
	b.mu.Lock() // a command may be under way
	defer b.mu.Unlock()
	if err := b.Close(); err != nil && !d.dead() {
		d.log.Error("giving a hardware counter back", "device", d.name, "err", err)
		d.stuck = append(d.stuck, b.bank) // behind the rule that holds it
	}
}

// freeStuck tries again to close what is stuck, in its order.
func (d *rdmaDevice) freeStuck() error {
	var errs []error
	d.stuck = slices.DeleteFunc(d.stuck, func(c io.Closer) bool {
		err := c.Close()
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(errs...)
}

// dead says that no verb works any more.
func (d *rdmaDevice) dead() bool { return errors.Is(d.down, backend.ErrDeviceLost) }

// unfit says that the device has to be closed and opened again.
func (d *rdmaDevice) unfit() bool { return d.dead() || errors.Is(d.down, errRuleStuck) }

func closeAll(rules []io.Closer) error {
	var errs []error
	for _, r := range rules {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
