package cli

import (
	"context"
	"errors"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// devicePeriod is how often a wait polls the device's words, because a device cannot wake a process.
const devicePeriod = time.Millisecond

// waitForDevice waits like shm.Reader.Wait, but on the words that a device writes, without a poller in between. If over,
// the wait has ended with err. If not, no device writes the words now, and the caller must wait for published values.
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
		status := r.Status() // read it before the totals: if the writer is dead, these are then its last ones
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

// readDevice loads a value and reports whether it ends the wait, and with which error. If not over, err is an error of
// loading.
//
// A reached threshold beats an error. load reads the completions before the errors, so completions counted in between are
// missing from the value. We therefore look a second time before an error ends the wait.
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

// met reports whether a value of the device's words ends the wait.
func (w *waiter) met(v shm.Value) (bool, error) {
	first := w.first.value
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
