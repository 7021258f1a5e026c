package poll

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// hand has one counter, which a test sets.
type hand struct {
	mu   sync.Mutex
	pair backend.Pair
}

func (*hand) Name() string { return "hand" }

func (h *hand) Read(_ []uint32, dst []backend.Pair) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range dst {
		dst[i] = h.pair
	}
	return nil
}

func (h *hand) add(packets uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pair.Packets += packets
	h.pair.Bytes += 60 * packets
}

// idlePoller is a poller that becomes idle after some milliseconds of quiet, with a reader of its mirror.
type idlePoller struct {
	t      *testing.T
	plan   *Plan
	poller *Poller
	w      *shm.Writer
	r      *shm.Reader
	hand   *hand
	h      shm.Handle
	idle   atomic.Bool   // as Options.Idle told it last
	busy   atomic.Uint64 // how often it told that the poller is not idle
}

const (
	testFast  = time.Millisecond
	testIdle  = 30 * time.Millisecond
	testQuiet = 50 * time.Millisecond
)

func newIdlePoller(t *testing.T) *idlePoller {
	t.Helper()
	path := filepath.Join(t.TempDir(), "idle.mirror")
	w, err := shm.Create(shm.Options{Path: path, Counters: 64, History: -1, HeartbeatPeriod: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	p := &idlePoller{t: t, plan: NewPlan(0), w: w, hand: &hand{}}
	if p.r, err = shm.OpenReader(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.r.Close() })
	p.poller = New(Options{Plan: p.plan, Writer: w, Config: dataplane.PollConfig{Period: testFast, IdlePeriod: testIdle}, Logger: slog.New(slog.DiscardHandler), Idle: p.tellIdle})
	p.poller.periods.Load().quiet = testQuiet
	return p
}

func (p *idlePoller) tellIdle(idle bool) {
	if !idle {
		p.busy.Add(1)
	}
	if p.idle.Swap(idle) == idle {
		p.t.Errorf("told twice that idle is %v", idle)
	}
}

// add adds the counter.
func (p *idlePoller) add() {
	p.t.Helper()
	var err error
	if p.h, err = p.w.Add(shm.Entry{Name: "web"}); err != nil {
		p.t.Fatal(err)
	}
	p.plan.AddSegment(p.h, false)
	p.plan.SetSource(p.h, p.hand, 0, backend.Pair{})
}

func (p *idlePoller) start() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.poller.Run(ctx) })
	p.t.Cleanup(func() { stop(); running.Wait() })
}

// await waits until is returns true for the mirror's status.
func (p *idlePoller) await(what string, is func(shm.Status) bool) shm.Status {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) {
		s := p.r.Status()
		if is(s) {
			return s
		}
		if time.Now().After(end) {
			p.t.Fatalf("waiting for %s: the status is %+v", what, s)
		}
	}
}

// awaitFast waits until the header has the fast period. On a slow machine the test may look so late that the poller is idle
// again. again must then make something change once more.
func (p *idlePoller) awaitFast(again func()) {
	p.t.Helper()
	since := time.Now()
	p.await("the period", func(s shm.Status) bool {
		if s.PollPeriod != testFast && time.Since(since) > testIdle+testQuiet {
			again()
			since = time.Now()
		}
		return s.PollPeriod == testFast
	})
}

func period(d time.Duration) func(shm.Status) bool {
	return func(s shm.Status) bool { return s.PollPeriod == d }
}

// A poller without counters runs a cycle per heartbeat. With one it starts at the fast period, slows down when nothing
// changes, and returns to the fast period when a cycle finds a change. The header must have each period, and the totals
// must be exact.
func TestPollerSlowsDownWhenQuietAndTellsReaders(t *testing.T) {
	p := newIdlePoller(t)
	p.start()
	p.await("the period without counters", period(beatPeriod))
	p.add()
	p.await("the idle period", period(testIdle))
	sent := uint64(0)
	for range 5 {
		change := func() {
			p.hand.add(3)
			sent += 3
		}
		told := p.busy.Load()
		change()
		p.awaitPackets(sent)
		p.await("the end of the idle period", func(shm.Status) bool { return p.busy.Load() > told })
		p.awaitFast(change)
		p.await("the idle period again", period(testIdle))
	}
	if n := p.busy.Load(); n < 5 || !p.idle.Load() {
		t.Errorf("told %d times that the poller is not idle, and then that idle is %v", n, p.idle.Load())
	}
	p.plan.Remove(p.h.Index)
	p.await("the period without counters again", period(beatPeriod))
}

// awaitPackets waits until the total is at least packets, and fails if it then is more.
func (p *idlePoller) awaitPackets(packets uint64) {
	p.t.Helper()
	var v shm.Value
	c, err := p.r.Counter(p.h)
	if err != nil {
		p.t.Fatal(err)
	}
	p.await("a total", func(shm.Status) bool {
		if v, err = c.Load(); err != nil && !errors.Is(err, shm.ErrBusy) {
			p.t.Fatal(err)
		}
		return err == nil && v.Packets >= packets
	})
	if want := (backend.Pair{Packets: packets, Bytes: 60 * packets}); v.Packets != want.Packets || v.Bytes != want.Bytes {
		p.t.Fatalf("got %+v, want %+v", v, want)
	}
}

// A cycle of the idle period wakes a waiting process, and from then on cycles come at the fast period.
func TestWokenWaiterEndsTheIdlePeriod(t *testing.T) {
	p := newIdlePoller(t)
	p.add()
	p.start()
	p.await("the idle period", period(testIdle))
	if woken := p.w.WokenAt(); woken != 0 {
		t.Errorf("a process was woken at %d, and none has waited", woken)
	}
	done := make(chan error, 1)
	go func() {
		_, err := p.r.Wait(t.Context(), p.h, 7)
		done <- err
	}()
	p.await("the period", period(testFast))
	if p.w.WokenAt() == 0 {
		t.Error("no process was woken, and the period is short")
	}
	p.hand.add(7)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p.awaitPackets(7)
	p.await("the idle period again", period(testIdle))
}

// SetPeriods works while the poller runs, even if the two new periods are equal, so that it never slows down.
func TestNewPeriodsApplyToARunningPoller(t *testing.T) {
	p := newIdlePoller(t)
	p.add()
	p.start()
	p.await("the idle period", period(testIdle))
	p.poller.SetPeriods(2*time.Millisecond, 2*time.Millisecond)
	s := p.await("the new period", period(2*time.Millisecond))
	p.await("cycles", func(now shm.Status) bool { return now.Cycle > s.Cycle+5 })
	if s := p.r.Status(); s.PollPeriod != 2*time.Millisecond || p.idle.Load() {
		t.Errorf("got %v, idle is %v", s.PollPeriod, p.idle.Load())
	}
}
