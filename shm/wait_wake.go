package shm

import (
	"io/fs"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// wakeEvery is the time between the wakes of cycles that follow each other without a
	// pause. A wake without a sleeper costs 0.3 to 0.4 µs.
	wakeEvery = int64(100 * time.Microsecond)
	// wakeBurst is how many times wakeEvery a pause saves up: so many cycles wake at once.
	wakeBurst = 16
	// wakeLate is how late the wake for a cycle comes at most that does not wake itself,
	// when no other cycle follows.
	wakeLate = 10 * time.Millisecond
	// keepEvery is how often the writer looks whether its page is there.
	keepEvery = int64(time.Second)
	// wakeAtOnce is how many sleepers a cycle wakes itself, and a pass between two pauses.
	wakeAtOnce = 16
	// passPause is the pause of a pass. 4,000 sleepers that were all woken at once would
	// take the CPU from the next poll cycle.
	passPause = 200 * time.Microsecond
)

// waker wakes the sleepers of a writer's page of waiters. It knows of no sleeper: a wake
// of none is cheap. A nil waker, of a writer without a page, wakes none.
type waker struct {
	path  string
	mode  fs.FileMode
	group int
	log   *slog.Logger
	page  atomic.Pointer[waitPage] // mapped for writing; changed by keep alone

	// For cycles, and for serve between cycles.
	generation uint64
	last       int64 // when a cycle ended
	credit     int64 // ns, of which a wake costs wakeEvery
	setAt      int64 // when late was set
	keptAt     int64 // when keep looked
	told       bool  // that keep could not make the page

	late  *time.Timer // runs wake
	owing atomic.Bool // late is set
	asked atomic.Uint32
	hook  func(step string) // tests only: called at the named steps; nil otherwise
}

// step calls the test's hook, if there is one.
func (k *waker) step(name string) {
	if k.hook != nil {
		k.hook(name)
	}
}

// setTimer makes the timer for the cycles that do not wake.
func (k *waker) setTimer() {
	k.late = time.AfterFunc(time.Hour, func() {
		k.owing.Store(false) // before the wake: a cycle that comes now sets the timer again
		k.wake()
	})
	k.late.Stop()
}

// cycle wakes for a cycle that was completed at now. It takes no longer than waking
// wakeAtOnce sleepers, and allocates nothing without sleepers.
func (k *waker) cycle(now int64) {
	if k == nil {
		return
	}
	k.credit = min(k.credit+max(now-k.last, 0), wakeBurst*wakeEvery)
	k.last = now
	if k.credit < wakeEvery {
		// A timer that is set wakes behind this load. The values must be there before it
		// (barrier owing-fence): the atomic store of cycle_done_at, in EndCycle, sees to that
		// on amd64, and on arm64 that this load does not pass a store-release.
		// Moved now and then, it does not run while cycles follow.
		if !k.owing.Load() || now-k.setAt >= int64(wakeLate/2) {
			k.setAt = now
			k.owing.Store(true)
			k.late.Reset(wakeLate)
		}
		return
	}
	k.credit -= wakeEvery
	k.wake()
	if since := now - k.keptAt; since < 0 || since >= keepEvery {
		k.keptAt = now
		k.keep()
	}
}

// wake changes the word, wakes some sleepers, and leaves the others to a pass.
//
// No wake is missed. The waiter loads the word, looks at the value, and sleeps while
// the word is what it loaded; futex(2) compares and queues under one lock. The writer
// publishes the value, changes the word, and wakes. A value that the waiter did not see
// was published after it loaded the word, so the word changes after that load: either
// the comparison sees it changed, or the waiter is queued before the wake.
func (k *waker) wake() {
	p := k.page.Load()
	p.change(p.word) // barrier wait-release
	k.step("wake-word")
	if p.wake(wakeAtOnce, anyBits) == wakeAtOnce && k.asked.Add(1) == 1 {
		go k.pass()
	}
}

// pass wakes every sleeper that was asleep when it was asked for, few at a time.
//
// It raises the turn first, and wakes the sleepers of other turns. A waiter loads the
// word, then the turn, and falls asleep only while the word is still that one. So a
// sleeper of the raised turn has the word of after the cycle that asked for the pass, or
// a later one, and needs no wake. A sleeper of an earlier turn is woken, once. Between
// the turn that a waiter saw and the one in which it is queued lie two passes at most,
// because a third was asked for by a cycle that changed the word.
func (k *waker) pass() {
	for asked := k.asked.Load(); ; asked = k.asked.Load() {
		p := k.page.Load()
		others := turnBits &^ turnBit(p.change(p.turn)) // barrier turn-release
		for p.wake(wakeAtOnce, others) == wakeAtOnce {
			time.Sleep(passPause)
		}
		if k.asked.CompareAndSwap(asked, 0) {
			return
		}
	}
}

// all wakes every sleeper at once: the writer ends, or its state changes.
func (k *waker) all() {
	if k != nil {
		k.page.Load().wakeAll()
	}
}

// serve makes the page that of the writer's generation, and wakes every sleeper: they
// sleep on what an earlier writer, or the file before this one, had said.
func (k *waker) serve(generation uint64) {
	if k != nil {
		k.generation = generation
		k.page.Load().serve(generation)
	}
}

// close wakes every sleeper. A pass that runs ends by itself, and keeps its mapping.
func (k *waker) close() {
	if k != nil {
		k.late.Stop()
		k.all()
	}
}

// The writer's side of the page. A page that was cut short changes no more, and faults
// nothing.

// change raises one of the page's words, and returns its new value.
func (p *waitPage) change(word *uint32) (value uint32) {
	_ = Guard(func() error { value = atomic.AddUint32(word, 1); return nil })
	return value
}

// wake wakes up to n sleepers, and returns how many.
func (p *waitPage) wake(n int, bits uint32) int {
	defer runtime.KeepAlive(p)
	return futexWake(p.word, n, bits)
}

func (p *waitPage) wakeAll() {
	p.change(p.word) // barrier wait-release
	p.wake(maxWakes, anyBits)
}

func (p *waitPage) serve(generation uint64) {
	_ = Guard(func() error { atomic.StoreUint64(p.generation, generation); return nil })
	p.wakeAll()
}
