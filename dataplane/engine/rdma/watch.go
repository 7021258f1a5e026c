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

// failure is why a device is not used for a while.
type failure struct {
	err error
	at  int64
}

// distrust is the time during which no flow goes to a device whose slots could not be read.
const distrust = 30 * time.Second

// slowAge is the age of samples from which on the budget is too small.
const slowAge = time.Second

// watchEvents handles the events of a device, until the device is lost or ctx ends.
func (b *Backend) watchEvents(ctx context.Context, d *device, n nic) {
	for {
		ev, err := n.nextEvent(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, ibv.ErrDeviceGone) {
			// The list of devices shows its end too.
			b.log.Warn("waiting for events of an RDMA device", "device", d.name, "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(backend.EventPause):
			}
			continue
		}
		b.mu.Lock()
		if d.unfit() { // the device was lost during the wait
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

// searchDevices opens lost devices that are back, and devices that were missing at the start (a driver that is
// loaded later, a VF that is attached). It also checks that open devices are still listed: a driver that cannot
// release a removed device (rxe) sends no event, and the removal waits until the context is closed.
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

// anyUnfit reports whether a device has to be opened again.
func (b *Backend) anyUnfit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.devices, (*device).unfit)
}

// checkDevices returns the lost devices without objects, and the listed devices that were never open. A device that
// was refused waits for distrust, because opening one tries rules and counters.
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

// openLate opens a device that was missing at the start. It signals success, and a reason for failure that is new.
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

// reopen closes a device that was lost and opens it again, if it is back.
func (b *Backend) reopen(d *device, infos []portInfo) {
	d.stop()
	d.running.Wait()
	if d.open != nil {
		// Closing the device ends a stuck rule at the latest. While the rule may exist, the device counts nothing below it.
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

// mayHaveLost reports whether some flow of the device may not be counted any more; see deviceFlow.lossReason.
func (d *device) mayHaveLost() bool {
	return d.working() != nil || d.reader.anyGivenUp()
}

// lossReason returns why a flow is not counted on its device any more, or nil.
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

// close closes the device and its remaining objects. Its goroutines have ended.
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
		return nil // every call fails
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
			Text: fmt.Sprintf("%s of %s: %v; packets that it matches may stay uncounted, or may not reach the kernel", d.name, d.netdev, strings.ReplaceAll(d.down.Error(), "\n", "; ")),
			Fix:  "restart the instance, because rules end with the process; counting on the device goes on by itself if the rule can be taken out",
		}}
	case errors.Is(d.down, errPortDown):
		return []dataplane.Condition{{
			Code: dataplane.CodeRDMAPortDown, Severity: dataplane.Low, Object: d.name,
			Text: fmt.Sprintf("the port of %s, which is %s, is down", d.name, d.netdev),
			Fix:  "bring the link up: ip link set " + d.netdev + " up; counting on it goes on by itself",
		}}
	case d.open == nil:
		return nil // no device was opened yet
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
