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
	// longestSleep bounds every sleep, so that the next look notices a dead writer, or another one.
	longestSleep = int64(500 * time.Millisecond)
	// shortestNap is the shortest pause of a waiter that no writer wakes.
	shortestNap = int64(time.Millisecond)

	// A sleeper has two bits of FUTEX_WAIT_BITSET. The bit of the lower half says which turn it saw: a pass of the writer
	// wakes the sleepers of other turns, each once. The bit of the upper half is chosen at random: a context that ends
	// wakes the sleepers with that bit, one in 16.
	turnBits = 1<<turns - 1
	anyBits  = 1<<32 - 1
)

// turnBit is the bit of the sleepers of a turn.
func turnBit(turn uint32) uint32 { return 1 << (turn % turns) }

// sleeper sleeps for one Wait.
type sleeper struct {
	r        *Reader
	deadline int64                    // on the clock of Now; 0 before the first sleep
	stop     func() bool              // ends the watch on ctx; nil before the first sleep
	over     atomic.Bool              // the Wait has ended
	bit      uint32                   // of the upper half
	page     atomic.Pointer[waitPage] // has the word to sleep on; nil: no page
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

// start notes the deadline of ctx, and begins to watch for its end. The first sleep calls it: most waits need none.
func (s *sleeper) start(ctx context.Context) {
	s.deadline = math.MaxInt64
	if at, ok := ctx.Deadline(); ok {
		left := time.Until(at) // before Now, so that the time between the two calls makes the deadline later, not earlier
		s.deadline = Now() + int64(left)
	}

	s.stop = context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // the sleep itself ends at the deadline
			s.interrupt()
		}
	})
}

// close ends the watch on the context.
func (s *sleeper) close() {
	if s.stop != nil {
		s.over.Store(true)
		s.stop()
	}
}

// interrupt ends the sleep. It wakes every sleeper with this one's bit, for which a read-only mapping is enough; the others
// look, and sleep on. It repeats that until the Wait has ended, because the sleeper may be just about to sleep.
func (s *sleeper) interrupt() {
	for !s.over.Load() {
		if p := s.page.Load(); p != nil {
			p.wake(maxWakes, s.bit)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// sleep sleeps until the futex word differs from l's, or until it is time to look again. It returns an error if the waiting
// is over.
func (s *sleeper) sleep(ctx context.Context, l *look) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.stop == nil {
		s.start(ctx)
	}
	now := Now()
	if now >= s.deadline {
		return context.DeadlineExceeded // as ctx.Err() will be in some microseconds
	}

	if !l.woken {
		p := s.r.page.current(s.r.path, l.generation)
		if p != s.page.Swap(p) && p != nil {
			return nil // look again: the page's word must be loaded before the value
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
	default: // a sandbox forbids futex(2), or the page was cut short (EFAULT)
		nap(ctx, min(until-Now(), shortestNap))
	}
	return nil
}

// nap sleeps for ns nanoseconds, or until ctx ends. It takes no thread.
func nap(ctx context.Context, ns int64) {
	select {
	case <-time.After(time.Duration(ns)):
	case <-ctx.Done():
	}
}

// pace is for a waiter that no writer wakes. If the header does not tell the poll period, the waiter learns it from the
// cycles that it sees.
type pace struct {
	cycle  uint64 // at the last look
	at     int64  // when that cycle was completed
	length int64  // of a cycle; 0: not known yet
}

// next returns the time of the next look: a poll period from now, within bounds.
func (p *pace) next(now int64, l *look) int64 {
	if p.cycle != 0 && l.cycle > p.cycle && l.cycleAt > p.at {
		p.length = (l.cycleAt - p.at) / int64(min(l.cycle-p.cycle, math.MaxInt32))
	}
	p.cycle, p.at = l.cycle, l.cycleAt
	return now + max(min(cmp.Or(l.told, p.length, l.period/16), l.period), shortestNap)
}
