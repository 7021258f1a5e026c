package cli

import (
	"context"
	"errors"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// words are the totals that a device writes to memory by itself, read where it writes
// them. at is when they were read: nobody notes when a device writes.
func (m *mirror) words(h shm.Handle) (v shm.Value, err error) {
	err = shm.Guard(func() error {
		d, err := m.reader.Device(h)
		if err != nil {
			return err
		}
		v, err = loadWords(&d)
		return err
	})
	return v, err
}

func loadWords(d *shm.Device) (v shm.Value, err error) {
	v.SampledAt = shm.Now()
	v.Packets, v.Bytes, err = d.Load()
	return v, err
}

// wordless says of an error from reading words that there are none to be read: no device
// writes for the counter, or not any more, or the mirror that took the name knows which.
func wordless(err error) bool {
	return errors.Is(err, shm.ErrNoDevice) || errors.Is(err, shm.ErrStale) || errors.Is(err, shm.ErrGone) || errors.Is(err, shm.ErrBusy)
}

// wordsPeriod is how often a wait looks at words: a device wakes nobody.
const wordsPeriod = time.Millisecond

// onWords waits as shm.Reader.Wait does, but for what the device writes, with no poller
// in between. It answers that it is over, with the error; where it is not, the rest is
// waited for in what is published.
func (w *waiter) onWords(ctx context.Context, h shm.Handle) (over bool, err error) {
	r := w.mirror.reader
	d, err := r.Device(h)
	if err != nil {
		return false, nil
	}
	load := func() (v shm.Value, err error) {
		err = shm.Guard(func() error { v, err = loadWords(&d); return err })
		return v, err
	}
	tick := time.NewTicker(wordsPeriod)
	defer tick.Stop()
	for {
		status := r.Status() // before the words, which are then its last
		over, err := w.lookAtWords(load)
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

// lookAtWords says that what load finds ends the wait, and with what error; or that it
// cannot be read. Completions are read before errors, so who finds an error looks
// again: that the completions are reached comes first.
func (w *waiter) lookAtWords(load func() (shm.Value, error)) (over bool, err error) {
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

// met says that what the words show ends the wait.
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
