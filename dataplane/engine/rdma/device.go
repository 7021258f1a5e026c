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
	"syscall"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
)

// device is the RDMA device of one interface. Backend.mu guards its fields; reader has a lock of its own.
type device struct {
	name   string // "mlx5_0"
	netdev string // "eth0"

	counts  dataplane.Interface // the entry of netdev
	leaving bool                // netdev is not counted on any more, and closeLeft will close the device

	open      nic         // nil while no device is open
	refused   *failure    // why an existing device was not opened; nil if none was tried
	down      error       // why the device does not count now, or nil
	elsewhere bool        // the last search found it at another interface; see isListed
	stuck     []io.Closer // objects whose Close has failed: rules, then the bulks that they use
	abandoned bool        // nobody can close some object any more, and the kernel may still have it
	stuckOpen bool        // closing the device may not have ended an abandoned object; only its removal does

	pools  []*slotPool
	roomy  []*slotPool   // pools that may have a free slot; takeSlot drops the full ones
	levels [2]levelTable // by flow.Direction

	reader  *reader
	stop    context.CancelFunc      // ends the goroutines
	running sync.WaitGroup          // reader.run and watchEvents
	gaveUp  atomic.Pointer[failure] // the last pool that reader has given up, for the time of distrust

	signal func() // Backend.signal
	now    func() int64
	log    *slog.Logger
}

// deviceFlow is a flow on one device.
type deviceFlow struct {
	flow    *entry
	dev     *device
	mode    dataplane.Mode
	matches []ruleMatch
	level   int         // of rules
	rules   []io.Closer // one for each of matches, while the device counts

	pool   *slotPool // nil before prepare and after releaseSlot
	slot   int       // in pool
	sample slotSample

	earlier backend.Pair // counted on this interface by earlier devices and stand-ins
	standIn *standIn     // counts in place of the lost device, or nil
}

// working returns why the device does not count, or nil.
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

// usable returns why no flow can be installed on the device, or nil. Unlike working it also distrusts a device whose slots
// could not be read a moment ago.
func (d *device) usable() error {
	if err := d.working(); err != nil {
		return err
	}
	if f := d.gaveUp.Load(); f != nil {
		return fmt.Errorf("device %s of %s: a moment ago %w: %w", d.name, d.netdev, backend.ErrUnread, f.err)
	}
	return nil
}

// prepare translates a flow to rules and takes a slot, or makes a new pool. The rules are not on the device yet.
func (d *device) prepare(f *entry) (*deviceFlow, error) {
	mode, matches, err := d.planRules(f.Flow)
	if err != nil {
		return nil, err
	}
	p := &deviceFlow{flow: f, dev: d, mode: mode, matches: matches}
	if d.takeSlot(p) {
		return p, nil
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

// takeSlot gives the flow a slot of an existing pool, if one is free.
func (d *device) takeSlot(p *deviceFlow) bool {
	for at := 0; at < len(d.roomy); {
		pool := d.roomy[at]
		if slot, ok := pool.take(&p.sample); ok {
			p.pool = pool
			p.slot = slot
			return true
		}
		if !pool.full() {
			at++ // it has free slots, but none was read again yet; see slotPool.take
			continue
		}
		pool.roomy = false
		d.roomy = slices.Delete(d.roomy, at, at+1)
	}
	return false
}

// planRules returns the mode and the rules with which the device would count a flow. It sends no command to the device.
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

	// mlx5 puts a rule that keeps the packets of a multicast address behind all other rules.
	multicast := slices.ContainsFunc(matches, func(m ruleMatch) bool { return m.Eth != nil && m.Eth.Dst.Addr[0]&1 != 0 })
	if multicast && mode != dataplane.ModeDontTrap && mode != dataplane.ModeDevX {
		return "", nil, refusal("a multicast address", "in mode "+string(mode)+" NICs put the rule behind all others, whatever its priority", useXDP)
	}
	return mode, matches, nil
}

// fits returns why the device cannot count f below the flows in above, or nil.
func (d *device) fits(f flow.Flow, above []backend.Placed) error {
	if _, _, err := d.planRules(f); err != nil {
		return err
	}
	for _, a := range above {
		if a.Interface != "" && a.Interface != d.netdev {
			continue // it matches no packets of this interface
		}
		mode, err := d.open.mode(a.Direction, a.Action)
		if err == nil && mode == dataplane.ModeDontTrap {
			return countedTwice(a.Name)
		}
	}
	return nil
}

// startRules adds the rules of a flow to the device. First it moves flows that lose against it out of the way.
func (d *device) startRules(p *deviceFlow) error {
	pushes, err := d.levels[p.flow.Direction].assign(p)
	if err != nil {
		return err
	}
	for _, c := range pushes {
		if err := c.flow.changeLevel(c.to); err != nil {
			return err
		}
	}
	p.rules, err = p.addRules(p.level)
	return err
}

// changeLevel moves the rules of a flow to another level. It adds the new rules before it removes the old ones. Both count in
// the same slot, and the first match ends the search, so each packet counts exactly once meanwhile.
func (p *deviceFlow) changeLevel(level int) error {
	if p.mode == dataplane.ModeDontTrap {
		return p.changeLevelWithGap(level)
	}
	fresh, err := p.addRules(level)
	if err != nil {
		return p.notMoved(level, err)
	}
	old := p.rules
	p.rules = fresh
	p.level = level
	return p.dev.removeRules(p, old)
}

// changeLevelWithGap is changeLevel in mode dont-trap. There a packet goes on to the next rule after a match, so old and new
// rules would both count it. We have to remove the old rules first, and miss packets in between.
func (p *deviceFlow) changeLevelWithGap(level int) error {
	p.sample.resets.Add(1) // the engine declares a discontinuity
	p.dev.signal()

	old := p.rules
	p.rules = nil
	if err := p.dev.removeRules(p, old); err != nil {
		return err
	}

	fresh, err := p.addRules(level)
	if err == nil {
		p.rules = fresh
		p.level = level
		return nil
	}

	// Put the old rules back. If that fails too, treat the device like one with a stuck rule: all flows leave it, and it is
	// opened again.
	var backErr error
	p.rules, backErr = p.addRules(p.level)
	if backErr != nil {
		p.dev.down = fmt.Errorf("%w: of flow %q, which has none now: %w", errRuleStuck, p.flow.Name, backErr)
	}
	return p.notMoved(level, errors.Join(err, backErr))
}

func (p *deviceFlow) notMoved(level int, err error) error {
	return fmt.Errorf("moving flow %q to priority %d: %w", p.flow.Name, level, err)
}

// addRules adds the rules of a flow at a level: all of them, or none and returns an error.
func (p *deviceFlow) addRules(level int) (rules []io.Closer, err error) {
	for _, m := range p.matches {
		r, err := p.dev.open.addRule(rule{
			match:     m,
			direction: p.flow.Direction,
			mode:      p.mode,
			drop:      p.flow.Action == flow.Drop,
			level:     level,
		}, p.pool.bulk, p.slot)
		if err != nil {
			err = fmt.Errorf("device %s of %s: making a rule: %w", p.dev.name, p.dev.netdev, err)
			if len(rules) > 0 {
				err = fmt.Errorf("%w: %w", err, backend.ErrUndone)
			}
			return nil, errors.Join(err, p.dev.removeRules(p, rules))
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// endRules removes the rules of a flow from the device and from its levels.
func (d *device) endRules(p *deviceFlow) error {
	d.levels[p.flow.Direction].remove(p)
	rules := p.rules
	p.rules = nil
	return d.removeRules(p, rules)
}

// removeRules closes rules of a flow. A dead device has lost them already, so errors do not matter there. But a rule stuck in
// a working device hides the rules below it, so we call the device down until the rule is gone.
func (d *device) removeRules(p *deviceFlow, rules []io.Closer) error {
	var errs []error
	for _, r := range rules {
		err := r.Close()
		if err == nil || d.dead() {
			continue
		}
		d.stuck = append(d.stuck, r)
		d.abandoned = d.abandoned || abandons(err)
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if err != nil {
		d.down = fmt.Errorf("%w: of flow %q: %w", errRuleStuck, p.flow.Name, err)
		d.signal()
	}
	return err
}

// releaseSlot frees the flow's slot, and closes a pool that becomes empty.
func (d *device) releaseSlot(p *deviceFlow) {
	pool := p.pool
	if pool == nil {
		return
	}
	p.pool = nil
	pool.free(p.slot, d.now())
	d.noteRoom(pool)

	// Keep the last bulk of a device for its next flow: making one takes firmware commands.
	keep := pool.slots() > 1 && len(d.pools) == 1 && !d.unfit()
	if !pool.empty() || keep {
		return
	}
	d.closePool(pool)
}

// noteRoom adds a pool to roomy, once.
func (d *device) noteRoom(pool *slotPool) {
	if !pool.roomy {
		pool.roomy = true
		d.roomy = append(d.roomy, pool)
	}
}

// closePool ends the reading of an empty pool and frees its hardware counters.
func (d *device) closePool(pool *slotPool) {
	same := func(o *slotPool) bool { return o == pool }
	d.reader.remove(pool)
	d.roomy = slices.DeleteFunc(d.roomy, same)
	d.pools = slices.DeleteFunc(d.pools, same)

	pool.mu.Lock() // waits for a running command
	defer pool.mu.Unlock()
	err := pool.Close()
	if err == nil {
		return
	}
	d.stuck = append(d.stuck, pool.bulk) // after the rule that uses it
	d.abandoned = d.abandoned || abandons(err)
	if !d.dead() {
		d.log.Error("giving a hardware counter back", "device", d.name, "err", err)
	}
}

// close closes the remaining objects of the device, then the device. Its goroutines must have ended.
func (d *device) close() error {
	if d.open == nil {
		return nil
	}

	errs := []error{d.freeStuck()}
	for i := range d.levels {
		d.levels[i].flows.All(func(p *deviceFlow) { errs = append(errs, closeAll(p.rules)) })
	}
	for _, b := range d.pools {
		errs = append(errs, b.Close())
	}
	err := d.open.Close()
	if d.dead() {
		return nil // every call fails on a dead device, whose objects the kernel has freed
	}
	return errors.Join(append(errs, err)...)
}

// freeStuck tries again to close the stuck objects: rules come before the bulks that they use.
func (d *device) freeStuck() error {
	var errs []error
	d.stuck = slices.DeleteFunc(d.stuck, func(c io.Closer) bool {
		err := c.Close()
		d.abandoned = d.abandoned || abandons(err)
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(errs...)
}

// abandons reports whether a Close with this error cannot be called again. Package ibv treats an object as closed after any
// error but EBUSY, whether or not the kernel still has it.
func abandons(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return slices.ContainsFunc(joined.Unwrap(), abandons)
	}
	return err != nil && !errors.Is(err, ibv.ErrBusy) && !errors.Is(err, syscall.EBUSY)
}

// dead reports whether the device is gone for good: no verb works any more.
func (d *device) dead() bool { return errors.Is(d.down, backend.ErrDeviceLost) }

// unfit reports whether the device can only count again after it was closed and opened.
func (d *device) unfit() bool { return d.dead() || errors.Is(d.down, errRuleStuck) }

func closeAll(rules []io.Closer) error {
	var errs []error
	for _, r := range rules {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
