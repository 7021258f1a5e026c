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
// For a counter of [KindCompletion] Wait also ends, with the value and [ErrCompletion], once the second value
// (completions in error) differs from the one at the call. A reached threshold comes first. A program that must not
// miss an error between its last look and the call uses WaitChange.
//
// Wait returns:
//   - ErrGone if the counter was removed;
//   - ErrNotAlive if the writer ended, has given no sign of life for two heartbeat periods, or gave the file up
//     (ErrStale too), or if the header was overwritten (ErrFormat too);
//   - ErrClosed within half a second after Close;
//   - ctx.Err(), never before ctx's deadline, and as soon after it as the kernel's timer and scheduler allow.
//
// A sleeping Wait occupies a thread. The writer wakes it after every poll cycle; see Wakeable.
func (r *Reader) Wait(ctx context.Context, h Handle, threshold uint64) (Value, error) {
	return newSleeper(r).await(ctx, h, r.reaches(h, threshold))
}

// WaitChange sleeps until the counter shows other numbers than since, which the caller read before: other packets or bytes
// (completions or errors), or a first sample. A new sample of equal numbers is no change. WaitChange ends early as Wait
// does, but not with ErrCompletion.
func (r *Reader) WaitChange(ctx context.Context, h Handle, since Value) (Value, error) {
	return newSleeper(r).await(ctx, h, func(v Value) (bool, error) {
		firstSample := (v.SampledAt == 0) != (since.SampledAt == 0)
		return v.Packets != since.Packets || v.Bytes != since.Bytes || firstSample, nil
	})
}

// condition reports whether a value ends a wait, and with which error.
type condition func(Value) (met bool, err error)

// reaches returns the condition of Wait. It reads the counter's kind at the first value that does not end the wait.
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

// await sleeps until the counter's value meets the condition, or no value will meet it any more.
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
			// Go on: the next look has the value, or one of the two finds the file dead.
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

// look holds the words of a page and of a mirror at one time.
type look struct {
	page       waitState
	woken      bool   // the mirror's writer wakes the sleepers on the page
	dead       error  // why no value will be published any more
	generation uint64 // of the writer
	period     int64  // of the heartbeat, ns, held between shortestNap and longestSleep
	told       int64  // the poll period by the header, ns; 0: not told
	cycle      uint64 // the cycle that was completed last
	cycleAt    int64  // when that was
	value      Value
}

// look loads the futex word first and the value last. A value that is published later comes with another word, so that a
// sleep on this word ends at once. Whether the writer is dead is loaded before the value: a dead writer has published its
// last one.
func (s *sleeper) look(c *HandleCounter) (l look, err error) {
	p := s.page.Load()
	if p != nil {
		l.page, err = p.load()
	}
	whole := p != nil && err == nil // a page that its owner cut short wakes no sleeper
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

// dead returns why no value will be published in this file any more, or nil.
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

// Wakeable returns nil if the writer wakes a Wait of this process. Otherwise a Wait looks once per poll cycle, at most a
// thousand times a second, and ends up to a cycle later. The error says why: fs.ErrPermission (the process may not read
// NAME.wait: be in its group) or errors.ErrUnsupported (the writer wakes no process, or this is not Linux).
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
