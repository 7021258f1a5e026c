package cli

import (
	"context"
	"errors"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// deviceValue reads the totals that a device writes to memory by itself. The sample time is the time of
// the read: the time of the device's write is not recorded.
func (m *mirror) deviceValue(h shm.Handle) (v shm.Value, err error) {
	err = shm.Guard(func() error {
		d, err := m.reader.Device(h)
		if err != nil {
			return err
		}
		v, err = loadDevice(&d)
		return err
	})
	return v, err
}

func loadDevice(d *shm.Device) (v shm.Value, err error) {
	v.SampledAt = shm.Now()
	v.Packets, v.Bytes, err = d.Load()
	return v, err
}

// notByDevice reports whether an error of words means that no words can be read: no device writes for
// the counter, or not any more, or another mirror has taken the name.
func notByDevice(err error) bool {
	return errors.Is(err, shm.ErrNoDevice) || errors.Is(err, shm.ErrStale) || errors.Is(err, shm.ErrGone) || errors.Is(err, shm.ErrBusy)
}

// devicePeriod is how often a wait polls words: a device cannot wake a process.
const devicePeriod = time.Millisecond

// waitForDevice waits as shm.Reader.Wait does, but for the device's words, with no poller in between.
// over means that the wait is over, with the error. If it is not over, the caller waits for
// published values.
func (w *waiter) waitForDevice(ctx context.Context, h shm.Handle) (over bool, err error) {
	r := w.mirror.reader
	d, err := r.Device(h)
	if err != nil {
		return false, nil
	}
	load := func() (v shm.Value, err error) {
		err = shm.Guard(func() error { v, err = loadDevice(&d); return err })
		return v, err
	}
	tick := time.NewTicker(devicePeriod)
	defer tick.Stop()
	for {
		status := r.Status() // before the totals, so that they are the last ones of a dead writer
		over, err := w.readDevice(load)
		switch {
		case over:
			return true, err
		case err != nil, !status.Alive:
			return false, nil
		}
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-tick.C:
		}
	}
}

// readDevice reports whether the loaded value ends the wait, and with which error; or that it
// cannot be read. Completions are read before errors. After an error it reads again, because
// reached completions take precedence.
func (w *waiter) readDevice(load func() (shm.Value, error)) (over bool, err error) {
	for range 2 {
		v, err := load()
		if err != nil {
			return false, err
		}
		w.see(v, true)
		if over, err = w.met(v); !errors.Is(err, shm.ErrCompletion) {
			return over, err
		}
	}
	return true, shm.ErrCompletion
}

// met reports whether the device's words end the wait.
func (w *waiter) met(v shm.Value) (bool, error) {
	first := w.since.value
	switch n := w.cmd.AtLeast; {
	case n == nil:
		return v.Packets != first.Packets || v.Bytes != first.Bytes || first.SampledAt == 0, nil
	case v.Packets >= *n:
		return true, nil
	case v.Bytes != first.Bytes:
		return true, shm.ErrCompletion
	}
	return false, nil
}
