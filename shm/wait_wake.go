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
	// wakeEvery is the time between the wakes of cycles that follow each other without a pause. A wake
	// without a sleeper costs 0.3 to 0.4 µs.
	wakeEvery = int64(100 * time.Microsecond)
	// wakeBurst is the number of wakes that a pause saves up: so many cycles wake at once.
	wakeBurst = 16
	// wakeLate is the time until a cycle that did not wake is made up for.
	wakeLate = 10 * time.Millisecond
	// wakeAtOnce is how many sleepers a cycle wakes itself, and a pass between two pauses.
	wakeAtOnce = 16
	// passPause is the pause of a pass. 4,000 sleepers that were all woken at once would take the CPU from
	// the next poll cycle.
	passPause = 200 * time.Microsecond

	maxWakes = math.MaxInt32
)

// waker wakes the sleepers of a writer's page of waiters. It does not know them: a wake without a sleeper is
// cheap. A nil waker, of a writer without a page, does nothing.
type waker struct {
	path  string
	mode  fs.FileMode
	group int
	log   *slog.Logger
	page  atomic.Pointer[waitPage] // mapped for writing; changed by keep alone

	// For cycles, and for serve and keep between cycles.
	generation uint64
	due        int64 // from when on a cycle wakes
	told       bool  // keep could not make the page, and has logged it

	wokenAt atomic.Int64 // time of the last wake that woke a sleeper; 0: none has

	late  *time.Timer // runs wake
	owing atomic.Bool // late is set
	asked atomic.Uint32
	hook
}

// cycle wakes sleepers for a cycle that was completed at now. It takes no longer than waking wakeAtOnce
// sleepers, and allocates nothing without sleepers.
func (k *waker) cycle(now int64) {
	if k == nil {
		return
	}
	if now < k.due {
		// A timer that is set wakes after this load. The values must be stored before the load (barrier owing-fence).
		// The atomic store of cycle_done_at, in EndCycle, orders them: on amd64 it is a full fence, and on arm64 a
		// load-acquire does not pass a store-release.
		if !k.owing.Load() {
			k.owing.Store(true)
			k.late.Reset(wakeLate)
		}
		return
	}
	k.due = max(k.due, now-(wakeBurst-1)*wakeEvery) + wakeEvery
	k.wake()
}

// wake changes the word, wakes some sleepers, and leaves the others to a pass. docs/mirror-format.md says why no wake is
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

// pass wakes every sleeper that was asleep when it was asked for, few at a time. It raises the turn first, and wakes
// the sleepers of other turns: each once (docs/mirror-format.md).
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

// serve stores the writer's generation in the page, and wakes every sleeper at once: the writer begins
// or ends, its state changes, or its file is another.
func (k *waker) serve(generation uint64) {
	if k != nil {
		k.generation = generation
		k.page.Load().serve(generation)
	}
}

// change raises one of the page's words, and returns its new value. A page that was cut short changes no more.
func (p *waitPage) change(word *uint32) (value uint32) {
	_ = Guard(func() error { value = atomic.AddUint32(word, 1); return nil })
	return value
}

// wake wakes up to n sleepers, and returns how many.
func (p *waitPage) wake(n int, bits uint32) int {
	defer runtime.KeepAlive(p)
	return futexWake(p.word, n, bits)
}

// serve stores the generation of the writer that wakes, and wakes every sleeper.
func (p *waitPage) serve(generation uint64) {
	_ = Guard(func() error { atomic.StoreUint64(p.generation, generation); return nil })
	p.change(p.word) // barrier wait-release
	p.wake(maxWakes, anyBits)
}
