package shm

import (
	"cmp"
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
	// longestSleep bounds every sleep, so that a waiter notices in time that its writer is dead or another one has taken over.
	longestSleep = int64(500 * time.Millisecond)
	// shortestNap is the shortest pause of a waiter whom no writer wakes, so that it does not take a CPU.
	shortestNap = int64(time.Millisecond)

	// A sleeper has two bits of FUTEX_WAIT_BITSET. The bit in the lower half is the turn that it saw: a pass of the writer
	// wakes only sleepers of other turns, each of them once. The bit in the upper half is random: to end its own sleep when a
	// context ends, a process wakes only the sleepers with that bit, one in 16.
	turnBits = 1<<turns - 1
	anyBits  = 1<<32 - 1
)

// turnBit returns the bit of the sleepers that saw this turn.
func turnBit(turn uint32) uint32 { return 1 << (turn % turns) }

// sleeper sleeps for one Wait.
type sleeper struct {
	r        *Reader
	deadline int64                    // on the clock of Now; 0 before the first sleep
	stop     func() bool              // stops watching ctx; nil before the first sleep
	over     atomic.Bool              // the Wait has returned
	bit      uint32                   // the random one in the upper half
	page     atomic.Pointer[waitPage] // with the word to sleep on; nil: none
	pace     pace
	futex    func(word *uint32, value uint32, until int64, bits uint32) syscall.Errno
	hook
}

func newSleeper(r *Reader) *sleeper {
	return &sleeper{
		r:     r,
		futex: futexWait,
		bit:   1 << (turns + rand.Uint32N(32-turns)),
	}
}

// start notes the deadline of ctx, and begins to watch ctx. It costs more than a look, so only the first sleep calls it: most
// waits return before.
func (s *sleeper) start(ctx context.Context) {
	s.deadline = math.MaxInt64
	if at, ok := ctx.Deadline(); ok {
		left := time.Until(at) // before Now: the time between the two calls must make the deadline later, never earlier
		s.deadline = Now() + int64(left)
	}

	s.stop = context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // the sleep itself ends at the deadline
			s.interrupt()
		}
	})
}

// close stops watching the context.
func (s *sleeper) close() {
	if s.stop != nil {
		s.over.Store(true)
		s.stop()
	}
}

// interrupt ends the sleep, by waking every sleeper with its random bit. (A read-only mapping is enough for that; the other
// sleepers look once, and sleep again.) The sleeper may be just about to sleep, so interrupt repeats the wake until the Wait has
// returned.
func (s *sleeper) interrupt() {
	for !s.over.Load() {
		if p := s.page.Load(); p != nil {
			p.wake(maxWakes, s.bit)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// sleep sleeps until the futex word differs from l's, or until it is time to look again. It returns an error if ctx ended or its
// deadline has passed.
func (s *sleeper) sleep(ctx context.Context, l *look) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.stop == nil {
		s.start(ctx)
	}
	now := Now()
	if now >= s.deadline {
		return context.DeadlineExceeded // ctx.Err() will say so in some microseconds too
	}

	if !l.woken {
		p := s.r.page.current(s.r.path, l.generation)
		if p != s.page.Swap(p) && p != nil {
			return nil // look again, because the new page's word must be loaded before the value
		}
		s.step("wait-asleep")
		nap(ctx, min(s.pace.next(now, l), s.deadline)-now)
		return nil
	}

	p := s.page.Load()
	until := min(now+l.period, s.deadline)
	defer runtime.KeepAlive(p)
	s.step("wait-asleep")
	switch s.futex(p.word, l.page.word, until, turnBit(l.page.turn)|s.bit) {
	case 0, syscall.EAGAIN, syscall.ETIMEDOUT, syscall.EINTR:
	default: // a sandbox forbids futex(2), or the page was cut short (EFAULT): do not spin
		nap(ctx, min(until-Now(), shortestNap))
	}
	return nil
}

// nap sleeps for ns nanoseconds, or until ctx ends. Unlike futexWait it occupies no thread.
func nap(ctx context.Context, ns int64) {
	select {
	case <-time.After(time.Duration(ns)):
	case <-ctx.Done():
	}
}

// pace says when a waiter whom no writer wakes should look again. If the header lacks the poll period, pace learns it from the
// cycles that it sees.
type pace struct {
	cycle  uint64 // at the last look
	at     int64  // when that cycle was completed
	length int64  // of a cycle, in ns; 0: unknown
}

// next returns the time of the next look: a poll period from now, within bounds.
func (p *pace) next(now int64, l *look) int64 {
	if p.cycle != 0 && l.cycle > p.cycle && l.cycleAt > p.at {
		p.length = (l.cycleAt - p.at) / int64(min(l.cycle-p.cycle, math.MaxInt32))
	}
	p.cycle, p.at = l.cycle, l.cycleAt
	return now + max(min(cmp.Or(l.told, p.length, l.period/16), l.period), shortestNap)
}
