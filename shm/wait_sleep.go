package shm

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// longestSleep bounds every sleep, so that a writer that died, or another one, is
	// noticed by looking.
	longestSleep = int64(500 * time.Millisecond)
	// shortestNap is the shortest pause of a waiter that no writer wakes.
	shortestNap = int64(time.Millisecond)
)

// sleeper sleeps for one Wait.
type sleeper struct {
	r        *Reader
	deadline int64       // on the clock of Now
	stop     func() bool // ends watching for ctx; nil: has not slept yet
	left     atomic.Bool
	bit      uint32                   // its own, by which interrupt wakes it
	page     atomic.Pointer[waitPage] // what it sleeps on; nil: nothing
	futex    func(word *uint32, value uint32, until int64, bits uint32) syscall.Errno
	hook     func(step string) // tests only: called at the named steps; nil otherwise

	pace pace
}

func newSleeper(r *Reader) *sleeper {
	return &sleeper{r: r, futex: futexWait, bit: 1 << (turns + rand.Uint32N(32-turns))}
}

// step calls the test's hook, if there is one.
func (s *sleeper) step(name string) {
	if s.hook != nil {
		s.hook(name)
	}
}

func (s *sleeper) start(ctx context.Context) {
	s.deadline = math.MaxInt64
	if at, ok := ctx.Deadline(); ok {
		left := time.Until(at) // before Now: what passes between the two makes it later, not earlier
		s.deadline = Now() + int64(left)
	}
	s.stop = context.AfterFunc(ctx, func() { s.interrupt(ctx) })
}

func (s *sleeper) close() {
	if s.stop != nil {
		s.left.Store(true)
		s.stop()
	}
}

// interrupt ends the sleep because ctx ended. Waking works on a read-only
// mapping and reaches every sleeper with the same bit; the others look, and sleep on.
// It is repeated because the sleeper may be just about to sleep.
func (s *sleeper) interrupt(ctx context.Context) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		time.Sleep(time.Millisecond) // its own time-out is as good, and wakes no other sleeper
	}
	for !s.left.Load() {
		if p := s.page.Load(); p != nil {
			futexWake(p.word, maxWakes, s.bit)
			runtime.KeepAlive(p)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// sleep sleeps until the futex word is not that of l any more, or it is time to
// look again. It returns why the waiting is over, or nil. waker.wake says why no
// wake is missed.
func (s *sleeper) sleep(ctx context.Context, l *look) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.stop == nil {
		s.start(ctx)
	}
	now := Now()
	if now >= s.deadline {
		return context.DeadlineExceeded // ctx.Err() of some microseconds later
	}
	next := s.pace.next(now, l)
	if l.woken {
		return s.doze(l, min(now+l.period, s.deadline))
	}
	if p := s.r.page.current(s.r.path, l.generation); p != s.page.Swap(p) && p != nil {
		return nil // its word is to be loaded before the value
	}
	s.step("wait-asleep")
	nap(ctx, min(next, s.deadline)-now)
	return nil
}

// doze sleeps on the page's word.
func (s *sleeper) doze(l *look, until int64) error {
	s.step("wait-asleep")
	p := s.page.Load()
	defer runtime.KeepAlive(p)
	switch s.futex(p.word, l.state.word, until, turnBit(l.state.turn)|s.bit) {
	case 0, syscall.EAGAIN, syscall.ETIMEDOUT, syscall.EINTR:
	default: // there is no futex (sandboxes), or the page is gone (EFAULT)
		time.Sleep(time.Duration(min(until-Now(), shortestNap)))
	}
	return nil
}

// nap sleeps for that many nanoseconds, or until ctx ends. It takes no thread.
func nap(ctx context.Context, ns int64) {
	t := time.NewTimer(time.Duration(ns))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// pace is how often a waiter looks that no writer wakes: once per poll cycle, whose
// length it learns from looking.
type pace struct {
	cycle  uint64
	at     int64
	length int64 // 0: not known yet
}

// next returns when to look again.
func (p *pace) next(now int64, l *look) int64 {
	if p.cycle != 0 && l.cycle > p.cycle && l.cycleAt > p.at {
		p.length = (l.cycleAt - p.at) / int64(min(l.cycle-p.cycle, math.MaxInt32))
	}
	p.cycle, p.at = l.cycle, l.cycleAt
	length := p.length
	if length == 0 {
		length = l.period / 16
	}
	return now + max(min(length, l.period), shortestNap)
}
