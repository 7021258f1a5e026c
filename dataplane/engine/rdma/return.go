package rdma

import (
	"errors"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/probe"
)

// searchDevices opens devices when they appear: lost ones after their return, and missing ones, for example because the
// driver was loaded or the VF was attached later.
//
// It also checks whether open devices are still listed. Some drivers, such as rxe, send no event when a device is removed, and the
// removal waits until we close the device.
func (b *Backend) searchDevices() {
	tick := time.NewTicker(backend.ReturnPeriod)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
		}
		// Flows wait for a lost device, so look for it at each tick. Everything else has time.
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

// openLate opens a device that was missing at the start. It signals unless it fails for the same reason as the last time.
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

// reopen closes a lost device, and opens it again if it is back.
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

// closeLost closes a lost device and reports whether it can be opened again. Each search calls it until it can.
//
// A stuck rule hides the rules below it, so we never open a device with one. Closing the device ends the
// rule at the latest. If the device is busy, the next search closes it. If something was abandoned, nobody can close the
// device any more, and we wait for its removal.
func (b *Backend) closeLost(d *device) bool {
	if d.stuckOpen {
		return false
	}
	if err := d.freeStuck(); err != nil && !d.dead() {
		return false
	}
	d.stuck = nil

	err := d.open.Close()
	if err != nil {
		b.log.Debug("closing a lost device", "device", d.name, "err", err)
	}
	if err != nil && !d.dead() {
		d.abandoned = d.abandoned || abandons(err)
		d.stuckOpen = d.abandoned
		return false
	}

	b.mu.Lock()
	d.open = nil
	b.mu.Unlock()
	return true
}
