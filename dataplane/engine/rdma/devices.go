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
	// open opens a device for counting. The caller must close it before hardware.
	open(portInfo) (nic, error)
	Close() error
}

// portInfo is one port of one device.
type portInfo struct {
	name   string // of the device
	port   uint8
	netdev string
	driver string // of the kernel
	shared bool   // another port of the device has a network interface, too
	// slaves are those of netdev if it is a bond whose packets the device counts all together (RoCE LAG).
	slaves  []string
	refused error // why we must not count on the port, or nil
}

// openDevices opens the devices of the interfaces. It returns an error if it could open none of them.
func (b *Backend) openDevices() error {
	infos, err := b.listPorts()
	if errors.Is(err, probe.ErrNotSupported) {
		return &backend.NoVerbsError{Err: err}
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

// names lists the configured names and patterns, for errors.
func (b *Backend) names() (names []string) {
	for _, i := range b.opts.Interfaces {
		names = append(names, i.Name)
	}
	return names
}

// join writes names as a list: "swnic0,swnic1".
func join[T ~string](words []T) string {
	s := make([]string, len(words))
	for i, w := range words {
		s[i] = string(w)
	}
	return strings.Join(s, ",")
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

	// If the interface is a bond or does not exist, say so instead. We can ignore an error of Do: the general reason is true, too.
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

// listPorts lists the ports of the devices in the network namespace of the interfaces. A kernel without RDMA returns an
// error.
func (b *Backend) listPorts() (infos []portInfo, err error) {
	err = b.ns.Do(func() error {
		infos, err = b.hw.devices()
		return err
	})
	return infos, err
}

// openDevice opens the device of an interface and starts its goroutines. An interface can have several devices, for example a
// software device beside that of the NIC. openDevice takes the first one able to count.
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

// startDevice makes n the open device of d and starts the goroutines. It clears what d remembers of an earlier device.
func (b *Backend) startDevice(d *device, info portInfo, n nic) {
	onGivenUp := func(err error) {
		d.gaveUp.Store(&failure{err: err, at: b.now()})
		b.signal()
	}
	r := newReader(b.now, b.pace, b.opts.budget().period(), b.log.With("device", info.name), onGivenUp, b.signal)
	ctx, stop := context.WithCancel(b.ctx)

	b.mu.Lock()
	d.name = info.name
	d.open = n
	d.down = nil
	d.refused = nil
	d.abandoned = false
	d.stuckOpen = false
	d.reader = r
	d.stop = stop
	d.gaveUp.Store(nil) // reads of the lost device have failed, which says nothing about this one
	b.absent = nil
	b.mu.Unlock()

	d.running.Go(func() { r.run(ctx) })
	d.running.Go(func() { b.watchEvents(ctx, d, n) })
}

// watchEvents handles the events of a device until the device is lost or ctx ends.
func (b *Backend) watchEvents(ctx context.Context, d *device, n nic) {
	for {
		ev, err := n.nextEvent(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, ibv.ErrDeviceGone) {
			// Try again after a pause. If the device is lost, searchDevices notices it without an event, too.
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

// noteEvent notes what an event says about a device. It reports whether to wait for more events.
func (b *Backend) noteEvent(d *device, ev nicEvent) (more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	switch {
	case d.dead(): // searchDevices was faster
		return false
	case d.unfit() && ev != nicFatal: // a port event does not free a stuck rule
		return true
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

// closeLeft closes the leaving devices, once no flow counts on them.
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
		err := d.close()
		if err == nil {
			continue
		}
		b.log.Debug("closing the device of an interface that is not counted on", "device", d.name, "interface", d.netdev, "err", err)
		if !abandons(err) { // the next search tries again
			b.mu.Lock()
			b.devices = append(b.devices, d)
			b.mu.Unlock()
		}
	}
}

// anyUnfit reports whether a device has to be opened again.
func (b *Backend) anyUnfit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.devices, (*device).unfit)
}

// checkDevices notes which open devices are gone. It returns the devices to open: empty are lost devices without flows or
// pools, late are listed ones, but never open before.
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

// checkUnopened reports whether to open a device that was never open. After a refusal it waits for distrust, because opening a
// device tries out rules and counters. When the device goes away, the refusal goes with it: the next one may do better.
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

// checkOpened ends the distrust of a device after a while, and notes the loss of a device that is not listed any more.
func (b *Backend) checkOpened(d *device, infos []portInfo) {
	if f := d.gaveUp.Load(); f != nil && b.now()-f.at > int64(distrust) {
		d.gaveUp.Store(nil)
		b.signal()
	}
	if d.open != nil && !d.dead() && !d.isListed(infos) {
		d.down = backend.ErrDeviceLost
		d.stuckOpen = false // the removal of a device ends its rules
		d.stop()
		b.log.Warn("an RDMA device is not listed any more", "device", d.name, "interface", d.netdev)
		b.signal()
	}
}

// countsFlows reports whether a flow has a level on the device, in either direction.
func (d *device) countsFlows() bool { return d.levels[0].flows.Len()+d.levels[1].flows.Len() > 0 }

// isListed reports whether an open device is still there.
//
// While a slave joins or leaves a bond, the GID table and the files of the bond disagree for a moment about the interface of
// the device. So a device at another interface is only gone if two searches in a row find it there.
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
