package shm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// Wait sleeps until the first value of the counter (packets, or completions) is at least threshold, and returns the
// value. A counter that was never sampled reaches no threshold, not even 0.
//
// For a counter of [KindCompletion] Wait also returns once the second value (completions in error) differs from the one
// at the call, with the value and [ErrCompletion]. If the threshold is reached too, there is no error. A program that
// must not miss an error between its last read and the call should use WaitChange.
//
// Wait returns:
//   - ErrGone if the counter was removed;
//   - ErrNotAlive if the writer ended, has given no sign of life for two heartbeat periods, or gave the file up
//     (ErrStale too), or if the header was overwritten (ErrFormat too);
//   - ErrClosed within half a second after Close;
//   - ctx.Err(), never before ctx's deadline, and as soon after it as the kernel's timer and scheduler permit.
//
// A sleeping Wait occupies a thread. The writer wakes it after every poll cycle; see Wakeable.
func (r *Reader) Wait(ctx context.Context, h Handle, threshold uint64) (Value, error) {
	return newSleeper(r).await(ctx, h, r.reaches(h, threshold))
}

// WaitChange sleeps until the counter differs from since, a value that the caller read before: in packets or bytes
// (completions or errors), or because it now has a first sample. A new sample of equal numbers is no change. WaitChange returns
// the errors of Wait, except ErrCompletion.
func (r *Reader) WaitChange(ctx context.Context, h Handle, since Value) (Value, error) {
	return newSleeper(r).await(ctx, h, func(v Value) (bool, error) {
		firstSample := (v.SampledAt == 0) != (since.SampledAt == 0)
		return v.Packets != since.Packets || v.Bytes != since.Bytes || firstSample, nil
	})
}

// condition reports whether a value ends a wait, and with which error, or nil.
type condition func(Value) (met bool, err error)

// reaches returns the condition of Wait. It reads the counter's kind only if the first value does not end the wait, because
// most waits end there.
func (r *Reader) reaches(h Handle, threshold uint64) condition {
	var kindKnown, completion bool
	var errorsAtCall uint64
	return func(v Value) (met bool, err error) {
		switch {
		case v.SampledAt != 0 && v.Packets >= threshold:
			return true, nil
		case completion && v.Bytes != errorsAtCall:
			return true, ErrCompletion
		case kindKnown:
			return false, nil
		}

		e, err := r.Entry(h)
		if errors.Is(err, ErrBusy) {
			return false, nil
		}
		kindKnown = true
		completion = e.Kind == KindCompletion
		errorsAtCall = v.Bytes
		return err != nil, err
	}
}

// await sleeps until the counter's value meets the condition, or no further value can come.
func (s *sleeper) await(ctx context.Context, h Handle, met condition) (Value, error) {
	c, err := s.r.Counter(h)
	if err != nil && !errors.Is(err, ErrBusy) {
		return Value{}, err
	}
	defer s.close()

	for {
		l, err := s.look(&c)
		switch {
		case err == nil:
			if ok, err := met(l.value); ok {
				return l.value, err
			}
		case errors.Is(err, ErrBusy), errors.Is(err, ErrStale):
			// Try again: the next look finds the value, or the file dead.
		default:
			return Value{}, err
		}
		if l.dead != nil {
			return l.value, l.dead
		}
		if err := s.sleep(ctx, &l); err != nil {
			return l.value, err
		}
	}
}

// look is what a waiter sees on the page of waiters and in the mirror.
type look struct {
	page       waitState
	woken      bool   // the mirror's writer wakes the sleepers on this page
	dead       error  // why no further value can come
	generation uint64 // of the writer
	period     int64  // of the heartbeat, ns, held between shortestNap and longestSleep
	told       int64  // the poll period according to the header, ns; 0: unknown
	cycle      uint64 // the last completed cycle
	cycleAt    int64  // when it was completed
	value      Value
}

// look loads the futex word first and the value last. The writer works in the other order: it publishes values, then changes
// the word, then wakes. So if a value is published after this look, the word has changed or will change. A sleep on the old
// word then returns at once, or the wake that follows ends it. The load of the word is a load-acquire, so that of
// the value comes after it on arm64 too.
//
// look also checks whether the writer is dead before it loads the value, because a dead writer has published its last value.
func (s *sleeper) look(c *HandleCounter) (l look, err error) {
	p := s.page.Load()
	if p != nil {
		l.page, err = p.load()
	}
	whole := p != nil && err == nil // an error means that the page was cut short: nobody wakes sleepers there
	s.step("wait-word")

	err = Guard(func() (err error) {
		h := s.r.v.hdr
		l.generation = atomic.LoadUint64(&h.generation)
		l.woken = whole && l.page.generation == l.generation
		l.period = min(max(atomic.LoadInt64(&h.heartbeatPeriod), shortestNap), longestSleep)
		l.told = max(0, atomic.LoadInt64(&h.pollPeriod))
		l.cycle = atomic.LoadUint64(&h.cycleDone)
		l.cycleAt = atomic.LoadInt64(&h.cycleDoneAt)
		l.dead = s.r.dead(Now())
		l.value, err = c.Load()
		return err
	})
	return l, err
}

// dead returns why no further value can come in this file, or nil.
func (r *Reader) dead(now int64) error {
	h := r.v.hdr
	state := State(atomic.LoadUint32(&h.state))
	silent := age(now, atomic.LoadInt64(&h.heartbeat))
	switch {
	case r.closed.Load():
		return ErrClosed
	case r.superseded.Load(), r.v.stale() != nil:
		return fmt.Errorf("%s: waiting: %w: open it again: %w", r.path, ErrStale, ErrNotAlive)
	case r.v.overwritten():
		return fmt.Errorf("%s: waiting: the header was overwritten: open it again: %w: %w", r.path, ErrFormat, ErrNotAlive)
	case state != Boot && state != Run:
		return fmt.Errorf("%s: waiting: its writer ended (%v): %w", r.path, state, ErrNotAlive)
	case tooOld(silent, time.Duration(atomic.LoadInt64(&h.heartbeatPeriod))):
		return fmt.Errorf("%s: waiting: its writer gave no sign of life for %v: %w", r.path, silent.Round(time.Millisecond), ErrNotAlive)
	}
	return nil
}

// Wakeable returns nil if the writer wakes a Wait of this process. Otherwise a Wait reads the mirror once per poll cycle, at
// most a thousand times a second, and may return a cycle late. The error says why: fs.ErrPermission (the process may not read
// NAME.wait: join its group) or errors.ErrUnsupported (the writer wakes no process, or this is not Linux).
func (r *Reader) Wakeable() error {
	if r.closed.Load() {
		return ErrClosed
	}

	p, err := openPage(r.path)
	if err != nil {
		return err
	}
	err = Guard(func() error {
		state, err := p.load()
		if err == nil && state.generation != atomic.LoadUint64(&r.v.hdr.generation) {
			err = fmt.Errorf("%s: waiting: the mirror's writer wakes no sleepers on this page: %w", waitPath(r.path), errors.ErrUnsupported)
		}
		return err
	})
	runtime.KeepAlive(p)
	runtime.KeepAlive(r)
	return err
}
