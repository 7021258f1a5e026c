package shm

import (
	"io/fs"
	"log/slog"
	"math"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// wakeEvery is the time between two wakes of a poller that polls without pause. A wake without a sleeper costs 0.3 to
	// 0.4 µs.
	wakeEvery = int64(100 * time.Microsecond)
	// wakeBurst is the number of wakes that a pause saves up: after a pause this many cycles may wake at once.
	wakeBurst = 16
	// wakeLate is the time after which a timer wakes in place of a cycle that did not.
	wakeLate = 10 * time.Millisecond
	// wakeAtOnce is how many sleepers a cycle wakes itself, and how many a pass wakes between two pauses.
	wakeAtOnce = 16
	// passPause is the time between two groups of a pass. 4,000 sleepers woken at once would take the CPU from the next poll
	// cycle.
	passPause = 200 * time.Microsecond

	maxWakes = math.MaxInt32
)

// waker wakes the sleepers on a writer's page of waiters. It does not know whether there are any, because a wake without a
// sleeper is cheap. A writer without a page has a nil waker, which does nothing.
type waker struct {
	path  string
	mode  fs.FileMode
	group int
	log   *slog.Logger
	page  atomic.Pointer[waitPage] // mapped for writing; only keep changes it

	// Guarded by the writer's mu.
	generation uint64 // of the writer
	due        int64  // a cycle wakes only from this time on
	told       bool   // keep has logged that it cannot make the page

	wokenAt atomic.Int64 // time of the last wake that woke a sleeper; 0: none has

	late  *time.Timer   // calls wake
	owing atomic.Bool   // late is set, and has not fired
	asked atomic.Uint32 // how many wakes have asked for the running pass; 0: none runs
	hook
}

// cycle wakes sleepers after a cycle that was completed at now. It wakes at most wakeAtOnce of them itself, and allocates
// nothing if there are none.
func (k *waker) cycle(now int64) {
	if k == nil {
		return
	}
	if now < k.due {
		// If owing is true here, the timer has yet to fire. Its wake then serves this cycle too, but only if the values of
		// the cycle became visible before the load of owing. Otherwise the timer may fire in between, a waiter may look,
		// find the old value, and sleep on without a wake to come.
		//
		// A store before a load is the one order that neither amd64 nor a release gives (barrier owing-fence). The
		// sync/atomic store of cycle_done_at in EndCycle does: on amd64 it is an XCHG, which is a full fence. On arm64 it
		// is an STLR and the load of owing an LDAR, and an LDAR never overtakes an earlier STLR.
		if !k.owing.Load() {
			k.owing.Store(true)
			k.late.Reset(wakeLate)
		}
		return
	}

	k.due = max(k.due, now-(wakeBurst-1)*wakeEvery) + wakeEvery
	k.wake()
}

// wake changes the word, wakes up to wakeAtOnce sleepers, and leaves the rest to a pass.
//
// The order matters: values, word, wake. A waiter loads the word before the value, and the kernel compares the word again before
// it lets the waiter sleep. If the waiter comes before the change, it is asleep when we wake. If it comes after, the comparison
// fails, and it looks again. docs/mirror-format.md has the proof.
func (k *waker) wake() {
	p := k.page.Load()
	p.change(p.word) // barrier wait-release: the values before the word
	k.step("wake-word")
	woken := p.wake(wakeAtOnce, anyBits)
	if woken > 0 {
		k.wokenAt.Store(Now())
	}
	if woken == wakeAtOnce && k.asked.Add(1) == 1 {
		go k.pass()
	}
}

// pass wakes, a few at a time, every sleeper that was asleep when a wake asked for the pass. It raises the turn first, then wakes
// only sleepers that saw another turn. So it wakes each of them once, even if they go back to sleep at once. If another wake
// asks meanwhile, pass repeats all of this.
func (k *waker) pass() {
	for asked := k.asked.Load(); ; asked = k.asked.Load() {
		p := k.page.Load()
		others := turnBits &^ turnBit(p.change(p.turn)) // barrier turn-release: the word before the turn
		for p.wake(wakeAtOnce, others) == wakeAtOnce {
			time.Sleep(passPause)
		}
		if k.asked.CompareAndSwap(asked, 0) {
			return
		}
	}
}

// serve stores the writer's generation in the page, and wakes every sleeper at once. A writer calls it when it begins, when it
// ends, and when its state changes.
func (k *waker) serve(generation uint64) {
	if k != nil {
		k.generation = generation
		k.page.Load().serve(generation)
	}
}

// change raises one of the page's words by one, and returns the new value. It does nothing to a page that was cut short.
func (p *waitPage) change(word *uint32) (value uint32) {
	_ = Guard(func() error {
		value = atomic.AddUint32(word, 1)
		return nil
	})
	return value
}

// wake wakes up to n sleepers that have one of bits, and returns how many.
func (p *waitPage) wake(n int, bits uint32) int {
	defer runtime.KeepAlive(p)
	return futexWake(p.word, n, bits)
}

// serve stores the generation of the writer that wakes on this page, and wakes every sleeper.
func (p *waitPage) serve(generation uint64) {
	_ = Guard(func() error {
		atomic.StoreUint64(p.generation, generation)
		return nil
	})
	p.change(p.word) // barrier wait-release
	p.wake(maxWakes, anyBits)
}
