package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A waiter raises the lease to leaseLength from now and again each leaseRenewal
// while it sleeps. Killed, it leaves a lease that runs out.
const (
	leaseLength  = int64(time.Second)
	leaseRenewal = leaseLength / 2
)

// shortestNap is the shortest pause of a waiter whom nobody wakes.
const shortestNap = int64(time.Millisecond)

// sleeper sleeps for one Wait.
type sleeper struct {
	r        *Reader
	deadline int64       // on the clock of Now
	stop     func() bool // ends watching for ctx; nil: has not slept yet
	left     atomic.Bool
	word     *uint32 // the futex; set before start
	futex    func(word *uint32, value uint32, until int64) syscall.Errno
	hook     func(step string) // tests only: called at the named steps; nil otherwise

	lease    *os.File // the reader's; nil: there is none to raise
	leaseOf  uint64   // generation of the writer that it is for; 0: none
	raisedAt int64

	pace pace
}

func newSleeper(r *Reader) *sleeper { return &sleeper{r: r, futex: futexWait} }

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
// mapping and reaches every waiter of the mirror; the others look, and sleep on.
// It is repeated because the sleeper may be just about to sleep.
func (s *sleeper) interrupt(ctx context.Context) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		time.Sleep(time.Millisecond) // its own time-out is as good, and wakes nobody else
	}
	for !s.left.Load() {
		futexWake(s.word)
		time.Sleep(200 * time.Microsecond)
	}
}

// sleep sleeps until the futex word is not that of l any more, or it is time to
// look again. It answers why the waiting is over, or nil.
//
// No wake is missed. The waiter: load the word, load the value, raise the lease,
// compare the word and queue. The writer: publish, change the word, load the lease,
// wake. Changing the word and loading the lease are sequentially consistent
// (Writer.wakeWaiters), and so are raising the lease and comparing the word:
// futex(2) makes a full fence before it compares (kernel/futex/waitwake.c,
// "smp_mb(); (A)"). So either the writer sees the lease, and wakes whoever is queued
// under the kernel's lock, or the waiter's comparison sees the changed word.
func (s *sleeper) sleep(ctx context.Context, l *look) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.stop == nil {
		s.word = l.at
		s.start(ctx)
	}
	now := Now()
	if now >= s.deadline {
		return context.DeadlineExceeded // ctx.Err() of some microseconds later
	}
	until := s.pace.next(now, l)
	if s.raise(l) {
		// A writer that dies is noticed by looking.
		until = min(s.raisedAt+leaseRenewal, now+l.period)
	}
	until = min(until, s.deadline)
	s.step("wait-raised")
	switch s.futex(s.word, l.word, until) {
	case 0, syscall.EAGAIN, syscall.ETIMEDOUT, syscall.EINTR:
		return nil
	case syscall.EFAULT:
		return ErrTruncated
	default: // there is no futex: sandboxes
		time.Sleep(time.Duration(min(until-now, shortestNap)))
		return nil
	}
}

// raise sees to the lease, and tells whether the writer wakes this waiter.
func (s *sleeper) raise(l *look) bool {
	if !l.watched {
		return false
	}
	if s.leaseOf != l.generation { // another writer may have another file
		s.leaseOf, s.raisedAt = l.generation, 0
		s.lease, _ = s.r.lease.open(s.r.path, l.generation) // without one it looks
	}
	if s.lease == nil {
		return false
	}
	for now := Now(); now-s.raisedAt >= leaseRenewal; now = Now() {
		var until [8]byte
		binary.NativeEndian.PutUint64(until[:], uint64(now+leaseLength))
		if _, err := s.lease.WriteAt(until[:], waitLease); err != nil {
			s.lease = nil // until another writer comes
			return false
		}
		// Held up for long between the two, it may have lowered what others
		// raised: then it does so again.
		s.raisedAt = now
	}
	return true
}

// readerLease is the page of waiters as a reader has it open, for all who wait
// on it. It is only ever written to, with pwrite(2): a page that another waiter cut
// short faults nobody.
type readerLease struct {
	mu   sync.Mutex
	file *os.File
	of   uint64 // generation of the writer that it was opened for
}

// open answers the page of that writer. Who has an older one at hand keeps a
// closed file, and opens this one when it sees the generation.
func (l *readerLease) open(path string, generation uint64) (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.of == generation {
		return l.file, nil
	}
	f, err := openLease(path)
	if err != nil {
		return nil, err
	}
	l.drop()
	l.file, l.of = f, generation
	return f, nil
}

func (l *readerLease) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

func (l *readerLease) drop() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

// pace is how often a waiter looks that nobody wakes: once per poll cycle, whose
// length it learns from looking.
type pace struct {
	cycle  uint64
	at     int64
	length int64 // 0: not known yet
}

// next answers when to look again.
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
