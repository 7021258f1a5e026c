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

// device is the RDMA device of one interface. All fields but the reader's are
// guarded by the backend's lock.
type device struct {
	name, netdev, driver string

	open      nic         // nil while there is none
	refused   *failure    // why one that is there was not opened; nil where none was tried
	down      error       // why flows are not counted here now; nil when they are
	stuck     []io.Closer // what could not be closed: rules, and counters that they hold
	stuckOpen bool        // and that closing the device did not end either
	signal    func()      // the backend's
	pools     []*slotPool
	roomy     []*slotPool   // of banks: all that are not full, and some that are
	levels    [2]levelTable // by flow.Direction
	reader    *reader
	now       func() int64
	log       *slog.Logger
	stop      context.CancelFunc      // ends reader and events
	running   sync.WaitGroup          // reader and events
	gaveUp    atomic.Pointer[failure] // counters that could not be read
}

// deviceFlow is a flow on one device.
type deviceFlow struct {
	flow    *entry
	dev     *device
	mode    dataplane.Mode
	matches []ruleMatch
	level   int
	pool    *slotPool // nil: no counter yet
	slot    int
	sample  slotSample
	rules   []io.Closer
	earlier backend.Pair // counted by earlier parts of the flow on this interface
	standIn *standIn     // counts in the place of the device; nil: the device counts
}

// working is nil when the device works.
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

// usable is nil when flows can be installed on the device.
func (d *device) usable() error {
	if err := d.working(); err != nil {
		return err
	}
	if f := d.gaveUp.Load(); f != nil {
		return fmt.Errorf("device %s of %s: a moment ago %w: %w", d.name, d.netdev, backend.ErrUnread, f.err)
	}
	return nil
}

// prepare makes a flow's part: its rules, and a counter for them. Nothing counts yet.
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
			at++ // its free slots cool down
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

// planRules says how the device would count a flow, without asking it.
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
	// mlx5 puts rules for a multicast address, when they take the packet, behind all others.
	if e := f.Match.Eth; e != nil && e.Dst.Addr[0]&1 != 0 && mode != dataplane.ModeDontTrap && mode != dataplane.ModeDevX {
		return "", nil, refusal("a multicast address", "in mode "+string(mode)+" NICs put the rule behind all others, whatever its priority", useXDP)
	}
	return mode, matches, nil
}

// fits says whether the device keeps f out of the way of the flows that win over it.
func (d *device) fits(f flow.Flow, above []backend.Placed) error {
	if _, _, err := d.planRules(f); err != nil {
		return err
	}
	for _, a := range above {
		if a.Interface != "" && a.Interface != d.netdev {
			continue // it wins elsewhere
		}
		mode, err := d.open.mode(a.Direction, a.Action)
		if err == nil && mode == dataplane.ModeDontTrap {
			return countedTwice(a.Name)
		}
	}
	return nil
}

// startRules makes the part's rules count, after those in their way have gone to later levels.
func (d *device) startRules(p *deviceFlow) error {
	side := &d.levels[p.flow.Direction]
	pushes, err := side.assign(p)
	if err != nil {
		return err
	}
	for _, m := range pushes {
		if err := m.part.changeLevel(m.to); err != nil {
			return err
		}
	}
	p.rules, err = p.addRules(p.level)
	return err
}

// changeLevel puts the rules of a part on another level, the new ones before the old ones are gone:
// both count in one counter, and the first match ends the search, so no packet is missed or
// counted twice.
func (p *deviceFlow) changeLevel(level int) error {
	fresh, err := p.addRules(level)
	if err != nil {
		return fmt.Errorf("moving flow %q to priority %d: %w", p.flow.Name, level, err)
	}
	old := p.rules
	p.rules, p.level = fresh, level
	return p.dev.removeRules(p, old)
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

// endRules takes the part's rules out. On a device that is gone there are none any more.
func (d *device) endRules(p *deviceFlow) error {
	d.levels[p.flow.Direction].remove(p)
	rules := p.rules
	p.rules = nil
	return d.removeRules(p, rules)
}

// removeRules closes rules of a part. One that a living device does not let go of is in the
// way of those below it: the device counts nothing any more until it is out.
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

// releaseSlot gives the part's counter back. A bank of one flow goes with it.
func (d *device) releaseSlot(p *deviceFlow) {
	b := p.pool
	if b == nil {
		return
	}
	p.pool = nil
	b.free(p.slot, d.now())
	d.noteRoom(b)
	if !b.empty() || b.slots() > 1 && len(d.pools) == 1 && !d.unfit() {
		return // a bulk that may serve the next flow
	}
	d.closePool(b)
}

// noteRoom notes a bank that is not full.
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
	b.mu.Lock() // a command may be under way
	defer b.mu.Unlock()
	if err := b.Close(); err != nil && !d.dead() {
		d.log.Error("giving a hardware counter back", "device", d.name, "err", err)
		d.stuck = append(d.stuck, b.bulk) // behind the rule that holds it
	}
}

// freeStuck tries again to close what is stuck, in its order.
func (d *device) freeStuck() error {
	var errs []error
	d.stuck = slices.DeleteFunc(d.stuck, func(c io.Closer) bool {
		err := c.Close()
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(errs...)
}

// dead says that no verb works any more.
func (d *device) dead() bool { return errors.Is(d.down, backend.ErrDeviceLost) }

// unfit says that the device has to be closed and opened again.
func (d *device) unfit() bool { return d.dead() || errors.Is(d.down, errRuleStuck) }

func closeAll(rules []io.Closer) error {
	var errs []error
	for _, r := range rules {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
