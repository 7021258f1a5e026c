//go:build unix

package shm

import (
	"context"
	"errors"
	"time"
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
// ErrStale, ErrTruncated: the file is of no use, and no other has taken its name.
func (n *NamedCounter) Wait(ctx context.Context, threshold uint64) (Value, error) {
	return n.wait(ctx, func(r *Reader, h Handle) (Value, error) { return r.Wait(ctx, h, threshold) })
}

// WaitChange sleeps until the counter shows other numbers than since, as Reader.WaitChange does.
// A counter that has no value yet, as in a mirror just made anew, shows no other numbers.
func (n *NamedCounter) WaitChange(ctx context.Context, since Value) (Value, error) {
	return n.wait(ctx, func(r *Reader, h Handle) (Value, error) {
		for v := since; ; {
			var err error
			if v, err = r.WaitChange(ctx, h, v); err != nil {
				return v, err
			}
			if v.SampledAt != 0 && (since.SampledAt == 0 || v.Packets != since.Packets || v.Bytes != since.Bytes) {
				return v, nil
			}
		}
	})
}

// wait is wait in one file after the other.
func (n *NamedCounter) wait(ctx context.Context, wait func(*Reader, Handle) (Value, error)) (Value, error) {
	var lost *Reader // its file is of no use any more
	var since time.Time
	for {
		v, r, err := n.waitOnce(wait)
		if err == nil || ctx.Err() != nil {
			return v, err
		}
		switch {
		case errors.Is(err, ErrCompletion), errors.Is(err, ErrClosed):
			return v, err
		case useless(err), r.overwritten():
			if r != lost {
				lost, since = r, time.Now()
			}
			if _, again := n.in.reopen(r); again != nil && time.Since(since) > remakeWait {
				return v, err
			}
		case errors.Is(err, ErrGone), errors.Is(err, ErrBusy): // looked up again
		case errors.Is(err, ErrNotFound) && r.starting(): // it adds its counters
		default:
			if _, again := n.in.reopen(r); again != nil {
				return v, err
			}
		}
		if nap(ctx, int64(reopenPause)); ctx.Err() != nil {
			return v, ctx.Err()
		}
	}
}

// waitOnce is wait in the file that has the name now.
func (n *NamedCounter) waitOnce(wait func(*Reader, Handle) (Value, error)) (v Value, r *Reader, err error) {
	r = n.in.now.Load()
	if err = Guard(func() (err error) { v, err = n.Load(); return err }); err != nil {
		return v, r, err
	}
	r = n.of
	v, err = wait(r, n.c.Handle())
	return v, r, err
}

// useless tells of an error from reading that the file is of no use any more.
func useless(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrFormat)
}

// overwritten tells whether the header is another than when the file was opened.
func (r *Reader) overwritten() bool {
	return Guard(func() error {
		fixed, err := r.v.hdr.fixed()
		if err == nil && fixed.checksum != r.v.fixed.checksum {
			err = ErrFormat
		}
		return err
	}) != nil
}

// starting tells whether the writer lives and has not added its counters yet.
func (r *Reader) starting() bool {
	s := r.Status()
	return s.Alive && s.State == Boot
}
