package view

import (
	"errors"

	"github.com/flowtally/flowtally/shm"
)

// Published returns the value last published by the writer. A truncated mirror is an error and not a fault.
func Published(r *shm.Reader, h shm.Handle) (v shm.Value, err error) {
	err = shm.Guard(func() error {
		c, err := r.Counter(h)
		if err == nil {
			v, err = c.Load()
		}
		return err
	})
	return v, err
}

// DeviceValue returns the totals that a device itself writes to memory. NotByDevice explains its errors.
func DeviceValue(r *shm.Reader, h shm.Handle) (v shm.Value, err error) {
	err = shm.Guard(func() error {
		d, err := r.Device(h)
		if err == nil {
			v, err = LoadDevice(&d, shm.Now())
		}
		return err
	})
	return v, err
}

// LoadDevice reads the totals of a device. Devices do not record when they write, so now, the time of reading, becomes
// the sample time.
func LoadDevice(d *shm.Device, now int64) (v shm.Value, err error) {
	v.SampledAt = now
	err = shm.Guard(func() error { v.Packets, v.Bytes, err = d.Load(); return err })
	return v, err
}

// NotByDevice reports whether an error of reading a device's totals is normal: no device counts for the counter now, or
// the file was replaced. Any other error means that the device's memory is unreadable.
func NotByDevice(err error) bool {
	return errors.Is(err, shm.ErrNoDevice) || errors.Is(err, shm.ErrStale) || errors.Is(err, shm.ErrGone) || errors.Is(err, shm.ErrBusy)
}
