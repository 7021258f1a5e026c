package cli

import (
	"context"
	"errors"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

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
	load := func() (shm.Value, error) { return view.LoadDevice(&d, shm.Now()) }
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
