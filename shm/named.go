//go:build unix

package shm

import (
	"context"
	"errors"
)

// NamedCounter reads the counter that has a name, whatever file and handle it has: it goes on over restarts, growth, and a
// mirror that is made anew. Like a Counter it belongs to one goroutine at a time. Made by Instance.Counter.
type NamedCounter struct {
	in   *Instance
	name string
	of   *Reader // the reader that c is of; nil: c must be found again
	c    Counter
}

// Name returns the counter's name.
func (n *NamedCounter) Name() string { return n.name }

// Load returns the counter's value, as Counter.Load does. ErrNotFound: no live counter has the name. ErrStale: the file was
// given up, and no other file has taken its name yet.
func (n *NamedCounter) Load() (v Value, err error) {
	for range maxTries {
		r := n.in.current.Load()
		if err = n.find(r); err == nil {
			if v, err = n.c.Load(); err == nil {
				return v, nil
			}
			n.of = nil
		}

		switch {
		case errors.Is(err, ErrStale):
			if err := n.in.reopen(r); err != nil {
				return Value{}, err
			}
		case errors.Is(err, ErrGone): // another counter may have the name by now: look it up again
		default:
			return Value{}, err
		}
	}
	return Value{}, ErrBusy
}

// find makes c the counter that has the name in the file of r.
func (n *NamedCounter) find(r *Reader) error {
	if n.of == r {
		return nil
	}
	h, err := r.Lookup(n.name)
	if err != nil {
		return err
	}
	c, err := r.Counter(h)
	if err != nil {
		return err
	}
	n.of, n.c = r, c
	return nil
}

// Wait sleeps until the first value is at least threshold, as Reader.Wait does, and goes on in a mirror that is made anew
// meanwhile. ErrNotAlive: the writer ended, or gives no sign of life. ErrStale, ErrTruncated, ErrFormat: the file is of no
// use, and for three seconds no other file has taken its name.
func (n *NamedCounter) Wait(ctx context.Context, threshold uint64) (Value, error) {
	return n.wait(ctx, func(r *Reader, h Handle) (Value, error) {
		return r.Wait(ctx, h, threshold)
	})
}

// WaitChange sleeps until the counter shows other numbers than since, as Reader.WaitChange does. A counter without a value,
// as in a mirror that was just made anew, shows no other numbers.
func (n *NamedCounter) WaitChange(ctx context.Context, since Value) (Value, error) {
	return n.wait(ctx, func(r *Reader, h Handle) (Value, error) {
		return newSleeper(r).await(ctx, h, func(v Value) (bool, error) {
			return v.SampledAt != 0 && (since.SampledAt == 0 || v.Packets != since.Packets || v.Bytes != since.Bytes), nil
		})
	})
}

// wait calls waitOn with the counter in one file after the other, until one of the waits has a result.
func (n *NamedCounter) wait(ctx context.Context, waitOn func(*Reader, Handle) (Value, error)) (Value, error) {
	var refused *Reader // of the file in which a wait was refused last
	var since int64     // when that file first refused one
	for {
		r := n.in.current.Load()
		v, err := n.waitIn(r, waitOn)
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, ErrCompletion), errors.Is(err, ErrClosed):
			return v, err
		case errors.Is(err, ErrGone), errors.Is(err, ErrBusy):
			n.of = nil // look the name up again
		case errors.Is(err, ErrNotFound) && r.starting(): // the writer has yet to add its counters
		default:
			if r != refused {
				refused, since = r, Now()
			}
			if n.in.reopen(r) == nil {
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

// waitIn calls waitOn with the counter in the file of r.
func (n *NamedCounter) waitIn(r *Reader, waitOn func(*Reader, Handle) (Value, error)) (Value, error) {
	err := Guard(func() error {
		if r.v.overwritten() {
			return ErrFormat
		}
		return n.find(r)
	})
	if err != nil {
		return Value{}, err
	}
	return waitOn(r, n.c.Handle())
}

// useless reports whether err means that the file is of no use any more.
func useless(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrFormat)
}

// starting reports whether the writer is alive and has published nothing yet.
func (r *Reader) starting() bool {
	s := r.Status()
	return s.Alive && s.State == Boot
}
