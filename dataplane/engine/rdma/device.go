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

// device is the RDMA device of one interface. Backend.mu guards all fields but the reader's own.
type device struct {
	name   string // "mlx5_0"
	netdev string // "eth0"
	driver string // of the kernel: "mlx5_core"

	counts  dataplane.Interface
	leaving bool // the interface is not counted on any more

	open      nic         // nil while no device is open
	refused   *failure    // why an existing device was not opened; nil if none was tried
	down      error       // why the device does not count now, or nil
	elsewhere bool        // the last search found it at another interface
	stuck     []io.Closer // objects that could not be closed: rules, and the bulks that they use
	abandoned bool        // nobody can close some object any more, and the kernel may still have it
	stuckOpen bool        // closing the device may not have ended an abandoned object; only its removal does

	pools  []*slotPool
	roomy  []*slotPool   // every pool that is not full, and some full ones
	levels [2]levelTable // by flow.Direction

	reader  *reader
	stop    context.CancelFunc      // ends reader and events
	running sync.WaitGroup          // reader and events
	gaveUp  atomic.Pointer[failure] // set when slots could not be read

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
	rules   []io.Closer // one for each of matches, while it counts

	pool   *slotPool // nil: no slot yet, or none any more
	slot   int       // in pool
	sample slotSample

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

// takeSlot gives the flow a slot of an existing pool, if one has room. Full pools leave roomy on the way.
func (d *device) takeSlot(p *deviceFlow) bool {
	for at := 0; at < len(d.roomy); {
		pool := d.roomy[at]
		if slot, ok := pool.take(&p.sample); ok {
			p.pool = pool
			p.slot = slot
			return true
		}
		if !pool.full() {
			at++ // it will have room: its free slots were not read again yet
			continue
		}
		pool.roomy = false
		d.roomy = slices.Delete(d.roomy, at, at+1)
	}
	return false
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
	multicast := f.Match.Eth != nil && f.Match.Eth.Dst.Addr[0]&1 != 0
	if multicast && mode != dataplane.ModeDontTrap && mode != dataplane.ModeDevX {
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
	p.rules = fresh
	p.level = level
	return p.dev.removeRules(p, old)
}

// changeLevelWithGap is changeLevel in mode dont-trap, where a packet goes on behind the first match: old and new
// rules would both count it. So it removes the old rules first, and packets may be missed in between.
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
		p.rules = fresh
		p.level = level
		return nil
	}

	// Put the old rules back. If that fails, all flows leave the device until it is opened again.
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

// addRules makes the rules of a flow at a level: all of them, or none and an error.
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
			return nil, errors.Join(err, p.dev.removeRules(p, rules))
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

// releaseSlot frees the flow's slot. A pool with one slot is closed.
func (d *device) releaseSlot(p *deviceFlow) {
	pool := p.pool
	if pool == nil {
		return
	}
	p.pool = nil
	pool.free(p.slot, d.now())
	d.noteRoom(pool)

	// The last pool of a device that reads in bulk stays for the next flow.
	keep := pool.slots() > 1 && len(d.pools) == 1 && !d.unfit()
	if !pool.empty() || keep {
		return
	}
	d.closePool(pool)
}

// noteRoom adds a pool that is not full to roomy.
func (d *device) noteRoom(pool *slotPool) {
	if !pool.roomy {
		pool.roomy = true
		d.roomy = append(d.roomy, pool)
	}
}

// closePool gives the hardware counters of an empty pool back.
func (d *device) closePool(pool *slotPool) {
	same := func(o *slotPool) bool { return o == pool }
	d.reader.remove(pool)
	d.roomy = slices.DeleteFunc(d.roomy, same)
	d.pools = slices.DeleteFunc(d.pools, same)

	pool.mu.Lock() // waits for a command
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

// close closes the device and its remaining objects. Its goroutines have ended.
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
		return nil // every call has failed, and the kernel has the objects back
	}
	return errors.Join(append(errs, err)...)
}

// freeStuck tries again to close the stuck objects, in their order.
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
