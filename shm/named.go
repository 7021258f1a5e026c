//go:build unix

package shm

import (
	"context"
	"errors"
)

// NamedCounter reads the counter that has a name, in each file and under each handle in turn: it goes on over
// restarts, growth, and a mirror that is made anew. Like a Counter it belongs to one goroutine at a time. Made by
// Instance.Counter.
type NamedCounter struct {
	in   *Instance
	name string
	of   *Reader // of c's file; nil: c is not usable
	c    Counter
}

// Name returns the counter's name.
func (n *NamedCounter) Name() string { return n.name }

// Load returns the counter's value, as Counter.Load does. ErrNotFound: no live counter has the name. ErrStale: the
// file was given up, and no other file has taken its name yet.
func (n *NamedCounter) Load() (v Value, err error) {
	for range maxTries {
		r := n.in.now.Load()
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
		case !errors.Is(err, ErrGone): // gone: another counter may have the name
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

// Wait sleeps until the first value is at least threshold, as Reader.Wait does, and goes on in a mirror that is made
// anew meanwhile. ErrNotAlive: the writer ended, or gives no sign of life. ErrStale, ErrTruncated, ErrFormat: the
// file is of no use, and for three seconds no other file has taken its name.
func (n *NamedCounter) Wait(ctx context.Context, threshold uint64) (Value, error) {
	return n.wait(ctx, func(r *Reader, h Handle) (Value, error) { return r.Wait(ctx, h, threshold) })
}

// WaitChange sleeps until the counter shows other numbers than since, as Reader.WaitChange does. A counter without a
// value, as in a mirror that was just made anew, shows no other numbers.
func (n *NamedCounter) WaitChange(ctx context.Context, since Value) (Value, error) {
	return n.wait(ctx, func(r *Reader, h Handle) (Value, error) {
		return newSleeper(r).await(ctx, h, func(v Value) (bool, error) {
			return v.SampledAt != 0 && (since.SampledAt == 0 || v.Packets != since.Packets || v.Bytes != since.Bytes), nil
		})
	})
}

// wait is wait in one file after the other.
func (n *NamedCounter) wait(ctx context.Context, wait func(*Reader, Handle) (Value, error)) (Value, error) {
	var lost *Reader // of the file that a wait was last refused in
	var since int64
	for {
		r := n.in.now.Load()
		v, err := n.waitIn(r, wait)
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, ErrCompletion), errors.Is(err, ErrClosed):
			return v, err
		case errors.Is(err, ErrGone), errors.Is(err, ErrBusy):
			n.of = nil // look the name up again
		case errors.Is(err, ErrNotFound) && r.starting(): // the writer has still to add its counters
		default:
			if r != lost {
				lost, since = r, Now()
			}
			if n.in.reopen(r) == nil {
				continue
			}
			if !useless(err) || Now()-since >= remakeWait {
				return v, err
			}
		}
		if nap(ctx, reopenPause); ctx.Err() != nil {
			return v, ctx.Err()
		}
	}
}

// waitIn is wait in the file of r.
func (n *NamedCounter) waitIn(r *Reader, wait func(*Reader, Handle) (Value, error)) (Value, error) {
	err := Guard(func() error {
		if r.v.overwritten() {
			return ErrFormat
		}
		return n.find(r)
	})
	if err != nil {
		return Value{}, err
	}
	return wait(r, n.c.Handle())
}

// useless tells of an error whether the file is of no use any more.
func useless(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrFormat)
}

// starting tells whether the writer lives and has not added its counters yet.
func (r *Reader) starting() bool {
	s := r.Status()
	return s.Alive && s.State == Boot
}
