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
	// wakeEvery is the time between two wakes while cycles follow each other without a pause. A wake without a sleeper
	// costs 0.3 to 0.4 µs.
	wakeEvery = int64(100 * time.Microsecond)
	// wakeBurst is the number of wakes that a pause saves up: so many cycles behind it wake sleepers at once.
	wakeBurst = 16
	// wakeLate is after what time a timer makes up for a cycle that did not wake.
	wakeLate = 10 * time.Millisecond
	// wakeAtOnce is how many sleepers a cycle wakes itself, and how many a pass wakes between two pauses.
	wakeAtOnce = 16
	// passPause is the pause of a pass. 4,000 sleepers that are all woken at once would take the CPU from the next poll
	// cycle.
	passPause = 200 * time.Microsecond

	maxWakes = math.MaxInt32
)

// waker wakes the sleepers of a writer's page of waiters. It does not know whether there are any: a wake without a sleeper
// is cheap. A writer without a page has a nil waker, which does nothing.
type waker struct {
	path  string
	mode  fs.FileMode
	group int
	log   *slog.Logger
	page  atomic.Pointer[waitPage] // mapped for writing; only keep changes it

	// Guarded by the writer's mu.
	generation uint64 // of the writer
	due        int64  // from when on a cycle wakes
	told       bool   // keep could not make the page, and has logged that

	wokenAt atomic.Int64 // time of the last wake that woke a sleeper; 0: none has

	late  *time.Timer   // runs wake
	owing atomic.Bool   // late is set
	asked atomic.Uint32 // how many wakes have asked for the pass that runs; 0: none runs
	hook
}

// cycle wakes sleepers for a cycle that was completed at now. It takes no longer than the wake of wakeAtOnce sleepers, and
// allocates nothing without sleepers.
func (k *waker) cycle(now int64) {
	if k == nil {
		return
	}
	if now < k.due {
		// If the timer is set, it wakes after this load. So the values must be stored before the load
		// (barrier owing-fence). The atomic store of cycle_done_at, in EndCycle, sees to that: on amd64 it is a full fence,
		// and on arm64 a load-acquire does not pass a store-release.
		if !k.owing.Load() {
			k.owing.Store(true)
			k.late.Reset(wakeLate)
		}
		return
	}

	k.due = max(k.due, now-(wakeBurst-1)*wakeEvery) + wakeEvery
	k.wake()
}

// wake changes the word, wakes up to wakeAtOnce sleepers, and leaves others to a pass. docs/mirror-format.md says why no wake is
// missed in this order.
func (k *waker) wake() {
	p := k.page.Load()
	p.change(p.word) // barrier wait-release
	k.step("wake-word")
	woken := p.wake(wakeAtOnce, anyBits)
	if woken > 0 {
		k.wokenAt.Store(Now())
	}
	if woken == wakeAtOnce && k.asked.Add(1) == 1 {
		go k.pass()
	}
}

// pass wakes, few at a time, every sleeper that was asleep when a wake asked for the pass. It raises the turn first, then
// wakes the sleepers of other turns, each once (docs/mirror-format.md). If a wake asks again meanwhile, it goes round again.
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

// serve stores the writer's generation in the page, and wakes every sleeper at once. It is for a writer that begins or
// ends, or whose state changes.
func (k *waker) serve(generation uint64) {
	if k != nil {
		k.generation = generation
		k.page.Load().serve(generation)
	}
}

// change raises one of the page's words by one, and returns the new value. A page that was cut short changes no more.
func (p *waitPage) change(word *uint32) (value uint32) {
	_ = Guard(func() error {
		value = atomic.AddUint32(word, 1)
		return nil
	})
	return value
}

// wake wakes up to n sleepers, and returns how many.
func (p *waitPage) wake(n int, bits uint32) int {
	defer runtime.KeepAlive(p)
	return futexWake(p.word, n, bits)
}

// serve stores the generation of the writer that wakes, and wakes every sleeper.
func (p *waitPage) serve(generation uint64) {
	_ = Guard(func() error {
		atomic.StoreUint64(p.generation, generation)
		return nil
	})
	p.change(p.word) // barrier wait-release
	p.wake(maxWakes, anyBits)
}
