package rdma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

var (
	errPortDown  = errors.New("its port is down")
	errRuleStuck = errors.New("a rule could not be taken out of it")
)

// failure is why a device is not trusted for a while.
type failure struct {
	err error
	at  int64
}

// distrust is how long no flow goes to a device whose counters could not be read.
const distrust = 30 * time.Second

// slowAge is the age of values from which on the budget is called short.
const slowAge = time.Second

// watchEvents takes note of what happens to a device, until it is lost or ctx ends.
func (b *Backend) watchEvents(ctx context.Context, d *device, n nic) {
	for {
		ev, err := n.nextEvent(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, ibv.ErrDeviceGone) {
			// Its end shows in the list of devices, too.
			b.log.Warn("waiting for events of an RDMA device", "device", d.name, "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(backend.EventPause):
			}
			continue
		}
		b.mu.Lock()
		if d.unfit() { // meanwhile, and for good
			b.mu.Unlock()
			return
		}
		switch {
		case err != nil, ev == nicFatal:
			d.down = backend.ErrDeviceLost
		case ev == nicPortDown:
			d.down = errPortDown
		case ev == nicPortUp:
			d.down = nil
		}
		dead := d.dead()
		if dead {
			d.stop()
		}
		b.log.Warn("an RDMA device changed", "device", d.name, "interface", d.netdev, "down", d.down)
		b.mu.Unlock()
		b.signal()
		if dead {
			return
		}
	}
}

// searchDevices opens devices that went, when they are back, and those that were never there, when they
// have come (a driver that is loaded later, a VF that is attached), and trusts again those whose
// time has come. It also looks whether devices are still in the list: a driver that cannot let go of one that
// is removed (rxe) sends no event, and the removal waits until the context is closed.
func (b *Backend) searchDevices() {
	tick := time.NewTicker(backend.ReturnPeriod)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
		}
		if n%backend.CalmTicks != 0 && !b.anyUnfit() {
			continue
		}
		infos, err := b.listPorts()
		if err != nil && !errors.Is(err, probe.ErrNotSupported) {
			b.log.Debug("listing RDMA devices", "err", err)
			continue
		}
		empty, late := b.checkDevices(infos)
		for _, d := range empty {
			b.reopen(d, infos)
		}
		for _, d := range late {
			b.openLate(d, infos)
		}
	}
}

// anyUnfit says that a device is not there that was.
func (b *Backend) anyUnfit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.devices, (*device).unfit)
}

// checkDevices answers the devices that went and that nothing is left on, and those that never
// were and are in the list. Opening one tries rules and counters out, so one that was refused has to
// wait.
func (b *Backend) checkDevices(infos []portInfo) (empty, late []*device) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.devices {
		if d.open == nil && d.down == nil {
			switch there := slices.ContainsFunc(infos, func(i portInfo) bool { return i.netdev == d.netdev }); {
			case !there && d.refused != nil:
				d.refused = nil
				b.signal()
			case !there:
			case d.refused == nil || b.now()-d.refused.at > int64(distrust):
				late = append(late, d)
			}
			continue
		}
		if f := d.gaveUp.Load(); f != nil && b.now()-f.at > int64(distrust) {
			d.gaveUp.Store(nil)
			b.signal()
		}
		listed := slices.ContainsFunc(infos, func(i portInfo) bool { return i.netdev == d.netdev && i.name == d.name })
		if d.open != nil && !d.unfit() && !listed {
			d.down = backend.ErrDeviceLost
			d.stop()
			b.log.Warn("an RDMA device is not listed any more", "device", d.name, "interface", d.netdev)
			b.signal()
		}
		if d.unfit() && d.levels[0].flows.Len()+d.levels[1].flows.Len() == 0 && len(d.pools) == 0 {
			empty = append(empty, d)
		}
	}
	return empty, late
}

// openLate opens a device that was never there. Somebody waits to hear of it, or of why it is
// none; a reason that was told is not told again.
func (b *Backend) openLate(d *device, infos []portInfo) {
	b.mu.Lock()
	was := d.refused
	b.mu.Unlock()
	switch err := b.openDevice(d, infos); {
	case err == nil:
		b.log.Info("an RDMA device has come", "device", d.name, "interface", d.netdev)
	case was != nil && was.err.Error() == err.Error():
		return
	default:
		b.log.Warn("opening an RDMA device that has come", "interface", d.netdev, "err", err)
	}
	b.signal()
}

// reopen closes what is left of a device that was lost and opens it again, if it is back.
func (b *Backend) reopen(d *device, infos []portInfo) {
	d.stop()
	d.running.Wait()
	if d.open != nil {
		// A rule that is stuck goes with the device, if nothing else takes it out. While
		// it may be there, nothing must be counted below it.
		if err := d.freeStuck(); err != nil && !d.dead() {
			return
		}
		d.stuck = nil
		if err := d.open.Close(); err != nil {
			b.log.Debug("closing a device that was lost", "device", d.name, "err", err)
			d.stuckOpen = d.stuckOpen || !d.dead()
		}
		if d.stuckOpen {
			return
		}
		b.mu.Lock()
		d.open = nil
		b.mu.Unlock()
	}
	if err := b.openDevice(d, infos); err != nil {
		b.log.Debug("looking for a device that was lost", "device", d.name, "err", err)
		return
	}
	b.log.Info("an RDMA device is back", "device", d.name, "interface", d.netdev)
	b.signal()
}

// mayHaveLost says that flows on the device may not be counted any more; see part.lossReason.
func (d *device) mayHaveLost() bool {
	return d.working() != nil || d.reader.anyGivenUp()
}

// lossReason is why the part is not counted any more.
func (p *deviceFlow) lossReason() error {
	if p.standIn != nil {
		return nil
	}
	if err := p.dev.working(); err != nil {
		return err
	}
	if p.pool == nil {
		return nil
	}
	if err := p.dev.reader.givenUp(p.pool); err != nil {
		return fmt.Errorf("device %s of %s: %w: %w", p.dev.name, p.dev.netdev, backend.ErrUnread, err)
	}
	return nil
}

// close takes down what is left of a device. Its goroutines have ended.
func (d *device) close() error {
	if d.open == nil {
		return nil
	}
	var errs []error
	for i := range d.levels {
		d.levels[i].flows.All(func(p *deviceFlow) { errs = append(errs, closeAll(p.rules)) })
	}
	for _, b := range d.pools {
		errs = append(errs, b.Close())
	}
	err := d.open.Close()
	if d.dead() {
		return nil // everything answers that it is gone
	}
	return errors.Join(append(errs, err)...)
}

// Conditions implements Backend.
func (b *Backend) Conditions() []dataplane.Condition {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	var out []dataplane.Condition
	for _, d := range b.devices {
		out = append(out, d.conditions()...)
	}
	return out
}

func (d *device) conditions() []dataplane.Condition {
	switch {
	case d.dead():
		return []dataplane.Condition{{
			Code: dataplane.CodeRDMADeviceLost, Severity: dataplane.Medium, Object: d.name,
			Text: fmt.Sprintf("%s of %s: %v; its flows are counted elsewhere, where that is possible", d.name, d.netdev, d.down),
			Fix:  "see dmesg and `rdma link`; when the device is back, counting on it goes on by itself",
		}}
	case errors.Is(d.down, errRuleStuck):
		return []dataplane.Condition{{
			Code: dataplane.CodeRDMARuleStuck, Severity: dataplane.High, Object: d.name,
			Text: fmt.Sprintf("%s of %s: %v; packets that it matches may be counted by nobody, or taken as before", d.name, d.netdev, strings.ReplaceAll(d.down.Error(), "\n", "; ")),
			Fix:  "restart the instance: what a device holds goes with the process; counting on the device goes on by itself if the rule can be taken out",
		}}
	case errors.Is(d.down, errPortDown):
		return []dataplane.Condition{{
			Code: dataplane.CodeRDMAPortDown, Severity: dataplane.Low, Object: d.name,
			Text: fmt.Sprintf("the port of %s, which is %s, is down", d.name, d.netdev),
			Fix:  "bring the link up: ip link set " + d.netdev + " up; counting on it goes on by itself",
		}}
	case d.open == nil:
		return nil // there was none yet
	}
	var out []dataplane.Condition
	failing, err, oldest := d.reader.health(d.now())
	if failing > 0 {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeRDMAReadErrors, Severity: dataplane.High, Object: d.name,
			Text: fmt.Sprintf("%d of its counters cannot be read: %v; their values grow old", failing, err),
			Fix:  "see dmesg for firmware errors; reading is tried again, more and more rarely",
		})
	}
	if oldest > slowAge {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeRDMABudget, Severity: dataplane.Low, Object: d.name,
			Text: fmt.Sprintf("values are up to %s old: every read is a firmware command", oldest.Round(100*time.Millisecond)),
			Fix:  "raise rdma.commands_per_second, count fewer flows in hardware, or use a device with bulk reads (DevX)",
		})
	}
	return out
}
