//go:build unix

package shm

import (
	"context"
	"errors"
)

// NamedCounter reads the counter that has a name, in whatever file and under whatever handle:
// it goes on over restarts, growth, and a mirror that is made anew. Like a Counter it belongs
// to one goroutine at a time. Made by Instance.Counter.
type NamedCounter struct {
	in   *Instance
	name string
	of   *Reader // c is of its file; nil: c is not usable
	c    Counter
}

// Name returns what the counter was made from.
func (n *NamedCounter) Name() string { return n.name }

// Load returns the counter's value, as Counter.Load does. ErrNotFound: no live counter has the
// name. ErrStale: the file was given up, and none has taken its name yet.
func (n *NamedCounter) Load() (Value, error) {
	if n.of == n.in.now.Load() {
		if v, err := n.c.Load(); err == nil {
			return v, nil
		}
	}
	return n.load()
}

// load is Load when the counter has to be looked up again, or the file opened again.
func (n *NamedCounter) load() (Value, error) {
	for range maxTries {
		r := n.in.now.Load()
		err := n.find(r)
		if err == nil {
			var v Value
			if v, err = n.c.Load(); err == nil {
				return v, nil
			}
			n.of = nil
		}
		switch {
		case errors.Is(err, ErrStale):
			if _, err := n.in.reopen(r); err != nil {
				return Value{}, err
			}
		case errors.Is(err, ErrGone): // another may have the name
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

// Wait sleeps until the first value is at least threshold, as Reader.Wait does, and goes on in
// a mirror that is made anew meanwhile. ErrNotAlive: the writer ended, or gives no sign of life.
func (n *NamedCounter) Wait(ctx context.Context, threshold uint64) (Value, error) {
	return n.wait(ctx, func(r *Reader, h Handle) (Value, error) { return r.Wait(ctx, h, threshold) })
}

// WaitChange sleeps until the counter shows other numbers than since, as Reader.WaitChange does.
func (n *NamedCounter) WaitChange(ctx context.Context, since Value) (Value, error) {
	return n.wait(ctx, func(r *Reader, h Handle) (Value, error) { return r.WaitChange(ctx, h, since) })
}

func (n *NamedCounter) wait(ctx context.Context, wait func(*Reader, Handle) (Value, error)) (Value, error) {
	for {
		at := n.in.now.Load()
		err := Guard(func() error { _, err := n.Load(); return err })
		if errors.Is(err, ErrTruncated) && n.in.another(ctx, at) {
			continue
		}
		if err != nil && !errors.Is(err, ErrBusy) {
			return Value{}, err
		}
		r := n.of
		if r == nil { // busy
			continue
		}
		v, err := wait(r, n.c.Handle())
		switch {
		case err == nil || ctx.Err() != nil:
			return v, err
		case errors.Is(err, ErrTruncated) && n.in.another(ctx, r): // its writer could not mark it
		case errors.Is(err, ErrStale):
		case errors.Is(err, ErrGone):
		case n.in.now.Load() != r: // the writer of the old file ended, another has the name
		default:
			return v, err
		}
	}
}
