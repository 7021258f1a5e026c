//go:build unix

package shm

import (
	"context"
	"errors"
)

// Counter reads a counter by its name. It survives restarts of the writer, growth of the file, and a mirror made anew:
// after each of them it looks the name up again. Use a Counter from one goroutine at a time. Instance.Counter makes one.
type Counter struct {
	in   *Instance
	name string

	reader  *Reader // the file that counter was found in; nil: look the name up before the next read
	counter HandleCounter
}

// Name returns the counter's name.
func (c *Counter) Name() string { return c.name }

// Load returns the counter's value, as HandleCounter.Load does. ErrNotFound: no live counter has the name. ErrStale: the
// writer gave the file up, and no new file has its name yet.
func (c *Counter) Load() (v Value, err error) {
	for range maxTries {
		r := c.in.current.Load()
		if err = c.find(r); err == nil {
			if v, err = c.counter.Load(); err == nil {
				return v, nil
			}
			c.reader = nil
		}

		switch {
		case errors.Is(err, ErrStale):
			if err := c.in.reopen(r); err != nil {
				return Value{}, err
			}
		case errors.Is(err, ErrGone): // another counter may have the name by now: look it up again
		default:
			return Value{}, err
		}
	}
	return Value{}, ErrBusy
}

// find looks the name up in the file of r, unless the counter was found there before.
func (c *Counter) find(r *Reader) error {
	if c.reader == r {
		return nil
	}

	h, err := r.Lookup(c.name)
	if err != nil {
		return err
	}
	found, err := r.Counter(h)
	if err != nil {
		return err
	}

	c.reader = r
	c.counter = found
	return nil
}

// Wait sleeps until the first value is at least threshold, as Reader.Wait does. If the mirror is made anew meanwhile, Wait
// continues in the new file. ErrNotAlive: the writer ended, or gives no sign of life. ErrStale, ErrTruncated, ErrFormat: the
// file became useless, and no new file took its name within three seconds.
func (c *Counter) Wait(ctx context.Context, threshold uint64) (Value, error) {
	return c.wait(ctx, func(r *Reader, h Handle) (Value, error) {
		return r.Wait(ctx, h, threshold)
	})
}

// WaitChange sleeps until the counter shows other numbers than since, as Reader.WaitChange does. It ignores a counter without
// a value, which a mirror made anew shows until the first poll cycle.
func (c *Counter) WaitChange(ctx context.Context, since Value) (Value, error) {
	return c.wait(ctx, func(r *Reader, h Handle) (Value, error) {
		return newSleeper(r).await(ctx, h, func(v Value) (bool, error) {
			return v.SampledAt != 0 && (since.SampledAt == 0 || v.Packets != since.Packets || v.Bytes != since.Bytes), nil
		})
	})
}

// wait calls waitOn in the current file, and again in each file that replaces it, until one of the waits has a result.
func (c *Counter) wait(ctx context.Context, waitOn func(*Reader, Handle) (Value, error)) (Value, error) {
	var failed *Reader // of the file in which a wait failed last
	var since int64    // when the first wait in that file failed
	for {
		r := c.in.current.Load()
		v, err := c.waitIn(r, waitOn)
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, ErrCompletion), errors.Is(err, ErrClosed):
			return v, err
		case errors.Is(err, ErrGone), errors.Is(err, ErrBusy):
			c.reader = nil // look the name up again
		case errors.Is(err, ErrNotFound) && r.starting(): // the writer has yet to add its counters
		default:
			if r != failed {
				failed, since = r, Now()
			}
			if c.in.reopen(r) == nil {
				continue
			}
			if !useless(err) || Now()-since >= remakeWait {
				return v, err
			}
		}

		nap(ctx, reopenPause)
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
	}
}

// waitIn looks the name up in the file of r, and calls waitOn with its handle.
func (c *Counter) waitIn(r *Reader, waitOn func(*Reader, Handle) (Value, error)) (Value, error) {
	err := Guard(func() error {
		if r.v.overwritten() {
			return ErrFormat
		}
		return c.find(r)
	})
	if err != nil {
		return Value{}, err
	}
	return waitOn(r, c.counter.Handle())
}

// useless reports whether err means that no value can be read from the file any more.
func useless(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrFormat)
}

// starting reports whether the writer is alive and has published nothing yet.
func (r *Reader) starting() bool {
	s := r.Status()
	return s.Alive && s.State == Boot
}
