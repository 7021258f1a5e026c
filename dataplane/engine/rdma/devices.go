package rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// hardware is the RDMA devices of the host.
type hardware interface {
	// devices lists the ports that have a network interface.
	devices() ([]portInfo, error)
	open(portInfo) (nic, error)
	Close() error
}

// portInfo is one port of one device.
type portInfo struct {
	name   string // of the device
	port   uint8
	netdev string
	driver string // of the kernel
	shared bool   // another port of the device has a network interface
	// slaves of the bond netdev, whose packets the device counts all; nil: netdev is no such bond.
	slaves  []string
	refused error // why the port is not counted on; nil: it is
}

// openDevices opens the devices of the interfaces. It returns an error if it opened none.
func (b *Backend) openDevices() error {
	infos, err := b.listPorts()
	if errors.Is(err, probe.ErrNotSupported) {
		return backend.NoDevice(err)
	}
	if err != nil {
		return err
	}

	var errs []error
	opened := 0
	for _, d := range b.devices {
		err := b.openDevice(d, infos)
		if err == nil {
			opened++
			continue
		}
		if !errors.Is(err, backend.ErrNoDevice) {
			b.log.Warn("opening an RDMA device", "interface", d.netdev, "err", err)
			errs = append(errs, err)
		}
	}

	if opened > 0 {
		return nil
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return backend.NoDevice(b.absentReason(infos))
}

// names lists the names and patterns of the interfaces.
func (b *Backend) names() (names []string) {
	for _, i := range b.opts.Interfaces {
		names = append(names, i.Name)
	}
	return names
}

// absentReason returns why no device belongs to the interfaces.
func (b *Backend) absentReason(infos []portInfo) error {
	listed := make([]string, len(infos))
	for i, info := range infos {
		listed[i] = fmt.Sprintf("%s (%s)", info.name, info.netdev)
	}
	e := &probe.UnsupportedError{
		Feature: "counting in hardware",
		Object:  join(b.names()),
		Reason:  fmt.Sprintf("%v; RDMA devices with an interface: %s", backend.ErrNoDevice, cmp.Or(strings.Join(listed, ", "), "none")),
		Fix:     "see `rdma link`, and load the driver of the NIC (mlx5_ib for ConnectX)",
	}

	// A bond, or an interface that does not exist, is a better reason. An error of Do leaves the reason as it is.
	_ = b.ns.Do(func() error {
		for _, name := range b.names() {
			if (dataplane.Interface{Name: name}).IsPattern() {
				continue
			}
			if reason, fix := bondReason(infos, netClass, name); reason != "" {
				e.Reason, e.Fix = reason, fix
			}
			if _, err := netlink.LinkByName(name); err != nil {
				e.Reason = fmt.Sprintf("interface %s: no such network interface", name)
				e.Fix = "see ip link"
			}
		}
		return nil
	})
	return e
}

// listPorts lists the ports of all devices that are visible in the network namespace of the interfaces. A kernel
// without RDMA has no list.
func (b *Backend) listPorts() (infos []portInfo, err error) {
	err = b.ns.Do(func() error {
		infos, err = b.hw.devices()
		return err
	})
	return infos, err
}

// openDevice opens the device of an interface and starts its goroutines. Of several devices of one interface (a
// software device beside the device of the NIC) it takes the first that can count.
func (b *Backend) openDevice(d *device, infos []portInfo) error {
	var errs []error
	for _, info := range infos {
		if info.netdev != d.netdev {
			continue
		}
		if info.refused != nil {
			errs = append(errs, info.refused)
			continue
		}

		var n nic
		err := b.ns.Do(func() (err error) {
			n, err = b.hw.open(info)
			return err
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("opening %s of %s: %w", info.name, info.netdev, err))
			continue
		}
		b.startDevice(d, info, n)
		return nil
	}

	if len(errs) == 0 {
		return fmt.Errorf("interface %s: %w", d.netdev, backend.ErrNoDevice)
	}
	err := errors.Join(errs...)
	b.mu.Lock()
	d.refused = &failure{err: err, at: b.now()}
	b.mu.Unlock()
	return err
}

// startDevice makes n the open device of d and starts its goroutines.
func (b *Backend) startDevice(d *device, info portInfo, n nic) {
	onGivenUp := func(err error) {
		d.gaveUp.Store(&failure{err: err, at: b.now()})
		b.signal()
	}
	period := max(cmp.Or(b.opts.Period, dataplane.DefaultPollPeriod), backend.ReadPeriodMin)
	r := newReader(b.now, b.pace, period, b.log.With("device", info.name), onGivenUp, b.signal)
	ctx, stop := context.WithCancel(b.ctx)

	b.mu.Lock()
	d.name = info.name
	d.driver = info.driver
	d.open = n
	d.down = nil
	d.refused = nil
	d.reader = r
	d.stop = stop
	d.gaveUp.Store(nil) // the reader of the lost device, whose reads failed, has ended
	b.absent = nil
	b.mu.Unlock()

	d.running.Go(func() { r.run(ctx) })
	d.running.Go(func() { b.watchEvents(ctx, d, n) })
}

// watchEvents handles the events of a device, until the device is lost or ctx ends.
func (b *Backend) watchEvents(ctx context.Context, d *device, n nic) {
	for {
		ev, err := n.nextEvent(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, ibv.ErrDeviceGone) {
			// Try again: searchDevices notices the end of the device, too.
			b.log.Warn("waiting for events of an RDMA device", "device", d.name, "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(backend.EventPause):
			}
			continue
		}
		if err != nil {
			ev = nicFatal
		}
		if !b.noteEvent(d, ev) {
			return
		}
	}
}

// noteEvent notes what an event says of a device. It reports whether more events of the device may come.
func (b *Backend) noteEvent(d *device, ev nicEvent) (more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if d.unfit() { // the device was lost during the wait
		return false
	}
	switch ev {
	case nicFatal:
		d.down = backend.ErrDeviceLost
	case nicPortDown:
		d.down = errPortDown
	case nicPortUp:
		d.down = nil
	}
	dead := d.dead()
	if dead {
		d.stop()
	}
	b.log.Warn("an RDMA device changed", "device", d.name, "interface", d.netdev, "down", d.down)
	b.signal()
	return !dead
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
		// Each tick looks for a lost device, as its flows wait for it; the rest has time.
		if n%backend.CalmTicks == 0 || b.anyUnfit() {
			b.searchOnce()
		}
	}
}

// searchOnce follows the interfaces and the list of devices once.
func (b *Backend) searchOnce() {
	switch changed, err := b.follow(); {
	case err != nil:
		b.log.Debug("following the interfaces", "err", err)
	case changed:
		b.signal()
	}
	b.closeLeft()

	infos, err := b.listPorts()
	if err != nil && !errors.Is(err, probe.ErrNotSupported) { // a kernel without RDMA lists no device
		b.log.Debug("listing RDMA devices", "err", err)
		return
	}
	empty, late := b.checkDevices(infos)
	for _, d := range empty {
		b.reopen(d, infos)
	}
	for _, d := range late {
		b.openLate(d, infos)
	}
}

// closeLeft closes the devices of interfaces that are not counted on any more and that no flow counts on.
func (b *Backend) closeLeft() {
	b.mu.Lock()
	var left []*device
	b.devices = slices.DeleteFunc(b.devices, func(d *device) bool {
		if !d.leaving || d.countsFlows() {
			return false
		}
		left = append(left, d)
		return true
	})
	b.mu.Unlock()

	for _, d := range left {
		d.stop()
		d.running.Wait()
		if err := d.close(); err != nil {
			b.log.Debug("closing the device of an interface that is not counted on", "device", d.name, "interface", d.netdev, "err", err)
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
		switch {
		case d.leaving:
		case d.open == nil && d.down == nil:
			if b.checkUnopened(d, infos) {
				late = append(late, d)
			}
		default:
			b.checkOpened(d, infos)
			if d.unfit() && !d.countsFlows() && len(d.pools) == 0 {
				empty = append(empty, d)
			}
		}
	}
	return empty, late
}

// checkUnopened reports whether a device that was never open is listed, and not to be left alone for a while. The
// reason against a device that is gone goes with it.
func (b *Backend) checkUnopened(d *device, infos []portInfo) bool {
	listed := slices.ContainsFunc(infos, func(i portInfo) bool { return i.netdev == d.netdev })
	if !listed {
		if d.refused != nil {
			d.refused = nil
			b.signal()
		}
		return false
	}
	return d.refused == nil || b.now()-d.refused.at > int64(distrust)
}

// checkOpened ends the distrust of a device after its time, and notices that it is not listed any more.
func (b *Backend) checkOpened(d *device, infos []portInfo) {
	if f := d.gaveUp.Load(); f != nil && b.now()-f.at > int64(distrust) {
		d.gaveUp.Store(nil)
		b.signal()
	}
	if d.open != nil && !d.unfit() && !d.isListed(infos) {
		d.down = backend.ErrDeviceLost
		d.stop()
		b.log.Warn("an RDMA device is not listed any more", "device", d.name, "interface", d.netdev)
		b.signal()
	}
}

// countsFlows reports whether a flow has a level on the device, in either direction.
func (d *device) countsFlows() bool { return d.levels[0].flows.Len()+d.levels[1].flows.Len() > 0 }

// isListed reports whether an open device is still there.
//
// While a slave joins or leaves a bond, the kernel's GID table and the files of the bond disagree for a moment on the device's
// interface. So a device that is listed at another interface only counts as gone when the next search finds it there, too.
func (d *device) isListed(infos []portInfo) bool {
	elsewhere := false
	for _, i := range infos {
		if i.name != d.name {
			continue
		}
		if i.netdev == d.netdev {
			d.elsewhere = false
			return true
		}
		elsewhere = true
	}
	first := elsewhere && !d.elsewhere
	d.elsewhere = elsewhere
	return first
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
	if d.open != nil && !b.closeLost(d) {
		return
	}

	if err := b.openDevice(d, infos); err != nil {
		b.log.Debug("looking for a device that was lost", "device", d.name, "err", err)
		return
	}
	b.log.Info("an RDMA device is back", "device", d.name, "interface", d.netdev)
	b.signal()
}

// closeLost closes a device that was lost, and reports whether it can be opened again. While a stuck rule may exist,
// the device counts nothing below it, so it stays closed. Closing the device ends the rule at the latest, unless that
// fails, too.
func (b *Backend) closeLost(d *device) bool {
	if err := d.freeStuck(); err != nil && !d.dead() {
		return false
	}
	d.stuck = nil
	if err := d.open.Close(); err != nil {
		b.log.Debug("closing a device that was lost", "device", d.name, "err", err)
		d.stuckOpen = d.stuckOpen || !d.dead()
	}
	if d.stuckOpen {
		return false
	}

	b.mu.Lock()
	d.open = nil
	b.mu.Unlock()
	return true
}
