package view

import (
	"errors"

	"github.com/flowtally/flowtally/shm"
)

// Published returns the last value that the writer published.
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

// DeviceValue returns the totals that a device writes to memory by itself.
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

// LoadDevice reads the totals of a device. now, the time of the read, is their sample time: a device does not record
// when it writes.
func LoadDevice(d *shm.Device, now int64) (v shm.Value, err error) {
	v.SampledAt = now
	err = shm.Guard(func() error { v.Packets, v.Bytes, err = d.Load(); return err })
	return v, err
}

// NotByDevice reports whether an error of reading a device's totals means that no device writes for the counter now, or
// that another file has taken the mirror's name. Any other error means that the memory cannot be read.
func NotByDevice(err error) bool {
	return errors.Is(err, shm.ErrNoDevice) || errors.Is(err, shm.ErrStale) || errors.Is(err, shm.ErrGone) || errors.Is(err, shm.ErrBusy)
}
