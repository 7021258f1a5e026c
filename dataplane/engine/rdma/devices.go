package rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
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
	found := 0
	for _, d := range b.devices {
		err := b.openDevice(d, infos)
		if err == nil {
			found++
			continue
		}
		if !errors.Is(err, backend.ErrNoDevice) {
			b.log.Warn("opening an RDMA device", "interface", d.netdev, "err", err)
			errs = append(errs, err)
		}
	}
	if found > 0 {
		return nil
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return backend.NoDevice(b.absentReason(infos))
}

// absentReason returns why no device belongs to the interfaces.
func (b *Backend) absentReason(infos []portInfo) error {
	e := &probe.UnsupportedError{
		Feature: "counting in hardware", Object: join(b.opts.Interfaces),
		Fix: "see `rdma link`, and load the driver of the NIC (mlx5_ib for ConnectX)",
	}
	listed := make([]string, len(infos))
	for i, info := range infos {
		listed[i] = fmt.Sprintf("%s (%s)", info.name, info.netdev)
	}
	e.Reason = fmt.Sprintf("%v; RDMA devices with an interface: %s", backend.ErrNoDevice, cmp.Or(strings.Join(listed, ", "), "none"))
	_ = b.ns.Do(func() error { // after an error of Do the reason stays as it is
		for _, name := range b.opts.Interfaces {
			if _, err := net.InterfaceByName(name); err != nil {
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
	if len(errs) > 0 {
		err := errors.Join(errs...)
		b.mu.Lock()
		d.refused = &failure{err: err, at: b.now()}
		b.mu.Unlock()
		return err
	}
	return fmt.Errorf("interface %s: %w", d.netdev, backend.ErrNoDevice)
}

// startDevice makes n the open device of d and starts its goroutines.
func (b *Backend) startDevice(d *device, info portInfo, n nic) {
	ctx, stop := context.WithCancel(b.ctx)
	period := max(cmp.Or(b.opts.Period, backend.DefaultPeriod), backend.ReadPeriodMin)
	r := newReader(b.now, b.pace, period, b.log.With("device", info.name), func(err error) {
		d.gaveUp.Store(&failure{err: err, at: b.now()})
		b.signal()
	}, b.signal)
	b.mu.Lock()
	d.name, d.driver, d.open, d.down, d.refused, d.reader, d.stop = info.name, info.driver, n, nil, nil, r, stop
	b.absent = nil
	b.mu.Unlock()
	d.running.Go(func() { r.run(ctx) })
	d.running.Go(func() { b.watchEvents(ctx, d, n) })
}
