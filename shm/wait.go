package shm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// Wait sleeps until the first value of the counter (packets, or completions) is
// at least threshold, and returns that value. A value that was never
// sampled reaches no threshold, not even 0.
//
// For a counter of [KindCompletion] it also ends, with the value and
// [ErrCompletion], when the second one (completions in error) differs from what
// it was at the call; that the threshold is reached comes first. (fi_cntr_wait(3)
// of libfabric: success, -FI_EAVAIL.) A program that looked at the errors
// before, and must not miss one between that look and the call, uses WaitChange.
// What a device counts by itself (Device) is waited for as it is published.
//
// It ends with ErrGone when the counter was removed; with ErrNotAlive when the writer
// ended, has given no sign of life for two heartbeat periods, or gave the file up (ErrStale
// too); with ErrClosed within half a second when the reader is closed; and with ctx.Err():
// never before ctx's deadline, after it as soon as the kernel's timer and scheduler let it.
//
// A sleeping Wait occupies a thread, as any blocking system call does. It is
// woken at the end of every poll cycle and looks; see Wakeable.
func (r *Reader) Wait(ctx context.Context, h Handle, threshold uint64) (Value, error) {
	return newSleeper(r).await(ctx, h, r.reaches(h, threshold))
}

// reaches is what Wait waits for.
func (r *Reader) reaches(h Handle, threshold uint64) condition {
	completion, first := false, true
	var errorsAtCall uint64
	return func(v Value) (met bool, err error) {
		if v.SampledAt != 0 && v.Packets >= threshold {
			return true, nil
		}
		if first {
			e, err := r.Entry(h)
			if errors.Is(err, ErrBusy) {
				return false, nil
			}
			first, errorsAtCall, completion = false, v.Bytes, e.Kind == KindCompletion
			return err != nil, err
		}
		if completion && v.Bytes != errorsAtCall {
			return true, ErrCompletion
		}
		return false, nil
	}
}

// WaitChange sleeps until the counter shows other numbers than since, which the
// caller read before: more packets or bytes (completions or errors), or a first
// sample. A new sample of the same numbers is no change. It ends early as Wait
// does, but for ErrCompletion.
func (r *Reader) WaitChange(ctx context.Context, h Handle, since Value) (Value, error) {
	return newSleeper(r).await(ctx, h, func(v Value) (bool, error) {
		return v.Packets != since.Packets || v.Bytes != since.Bytes || (v.SampledAt == 0) != (since.SampledAt == 0), nil
	})
}

// condition says of a value that the waiting is over, and whether with an error.
type condition func(Value) (met bool, err error)

// await sleeps until met says so of the counter's value, or there is nothing to
// wait for.
func (s *sleeper) await(ctx context.Context, h Handle, met condition) (Value, error) {
	c, err := s.r.Counter(h)
	if err != nil && !errors.Is(err, ErrBusy) {
		return Value{}, err
	}
	defer s.close()
	for {
		l, err := s.look(&c)
		if errors.Is(err, ErrStale) {
			return Value{}, s.r.dead(Now())
		}
		if err != nil && !errors.Is(err, ErrBusy) { // busy: it is being published, and looked at again
			return Value{}, err
		}
		if err == nil {
			if ok, err := met(l.value); ok {
				return l.value, err
			}
		}
		if s.r.closed.Load() {
			return l.value, ErrClosed
		}
		if s.r.left.Load() {
			return l.value, fmt.Errorf("%s: waiting: %w", s.r.path, ErrStale)
		}
		if l.dead != nil {
			return l.value, l.dead
		}
		if err := s.sleep(ctx, &l); err != nil {
			return l.value, err
		}
	}
}

// look is what a waiter sees of a mirror at one time.
type look struct {
	state      waitState // of the page of waiters; before all else, because a cycle that ends after it changes the word
	woken      bool      // the mirror's writer wakes the sleepers on the page
	dead       error     // ErrNotAlive and why
	generation uint64    // of the writer
	period     int64     // of its heartbeat, ns, held between shortestNap and longestSleep
	cycle      uint64
	cycleAt    int64
	value      Value
}

// look loads the futex word first and the value last. A value that is
// published later comes with another word, so that sleeping on this one ends at
// once; a writer that was dead before has published its last.
func (s *sleeper) look(c *Counter) (l look, err error) {
	p := s.page.Load()
	if p != nil {
		if l.state, err = p.load(); err != nil { // its owner cut it short: look once per cycle
			s.page.Store(nil)
			s.r.page.drop(p)
			p = nil
		}
	}
	s.step("wait-word")
	err = Guard(func() (err error) {
		h := s.r.v.hdr
		l.generation = atomic.LoadUint64(&h.generation)
		l.woken = p != nil && l.state.generation == l.generation // a file may say any number, 0 too
		l.period = min(max(atomic.LoadInt64(&h.heartbeatPeriod), shortestNap), longestSleep)
		l.cycle = atomic.LoadUint64(&h.cycleDone)
		l.cycleAt = atomic.LoadInt64(&h.cycleDoneAt)
		l.dead = s.r.dead(Now())
		l.value, err = c.Load()
		return err
	})
	return l, err
}

// dead says why no value will be published any more, or returns nil.
func (r *Reader) dead(now int64) error {
	h := r.v.hdr
	if err := r.v.stale(); err != nil {
		return fmt.Errorf("%s: waiting: %w: open it again: %w", r.path, err, ErrNotAlive)
	}
	switch s := State(atomic.LoadUint32(&h.state)); s {
	case Boot, Run:
	default:
		return fmt.Errorf("%s: waiting: its writer ended (%v): %w", r.path, s, ErrNotAlive)
	}
	if silent := age(now, atomic.LoadInt64(&h.heartbeat)); tooOld(silent, time.Duration(atomic.LoadInt64(&h.heartbeatPeriod))) {
		return fmt.Errorf("%s: waiting: its writer gave no sign of life for %v: %w", r.path, silent.Round(time.Millisecond), ErrNotAlive)
	}
	return nil
}

// Wakeable tells whether a Wait of this process is woken by the writer: nil; else
// why not, and it looks once per poll cycle instead (at most a thousand times a
// second), so that it ends up to a cycle later. Reasons are fs.ErrPermission (the
// process may not read NAME.wait: be in its group) and errors.ErrUnsupported (the
// writer wakes no process, or this is not Linux).
func (r *Reader) Wakeable() error {
	if r.closed.Load() {
		return ErrClosed
	}
	var generation uint64
	if err := Guard(func() error { generation = atomic.LoadUint64(&r.v.hdr.generation); return nil }); err != nil {
		return err
	}
	p, err := openPage(r.path)
	if err != nil {
		return err
	}
	state, err := p.load()
	if err == nil && state.generation != generation {
		err = fmt.Errorf("%s: waiting: %s is not of its writer, who wakes nobody: %w", r.path, waitPath(r.path), errors.ErrUnsupported)
	}
	runtime.KeepAlive(p)
	runtime.KeepAlive(r)
	return err
}
