package shm

import (
	"fmt"
	"time"
)

// DeviceSegment returns the mirror's device segment. The first call makes it, with that number of slots. It never grows,
// because a device may be writing to it. ErrFull: it exists already, with fewer slots.
func (w *Writer) DeviceSegment(slots int) (d *DeviceSegment, err error) {
	err = w.control(func() (err error) {
		d, err = w.deviceSegment(slots)
		return err
	})
	return d, err
}

func (w *Writer) deviceSegment(slots int) (*DeviceSegment, error) {
	path := w.devicePath()
	switch {
	case slots < 1 || slots > maxDeviceSlots:
		return nil, fmt.Errorf("%s: making a device segment of %d slots: must be 1 to %d: %w", path, slots, maxDeviceSlots, ErrInvalid)
	case w.device != nil && len(w.device.slots) < slots:
		return nil, fmt.Errorf("%s: making a device segment of %d slots: there is one of %d, which stays as long as this writer: ask for more at first: %w",
			path, slots, len(w.device.slots), ErrFull)
	case w.device != nil:
		return w.device, nil
	}

	d, err := newDraft(path, deviceLength(uint32(slots)), w.mode, w.reserve, w.step)
	if err != nil {
		return nil, err
	}
	m, err := mapFile(d.f, 0, deviceLength(uint32(slots)), true)
	if err != nil {
		d.drop()
		return nil, err
	}
	seg, err := w.newDeviceSegment(m, uint32(slots), time.Now().UnixNano())
	if err != nil {
		d.drop()
		return nil, err
	}

	seg.v.ready()
	w.step("device-created")
	if err := d.name(); err != nil {
		d.drop()
		return nil, err
	}
	_ = d.f.Close()
	w.step("device-renamed")
	w.useDevice(seg)
	w.step("device-known")
	return seg, nil
}
