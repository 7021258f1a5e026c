package shm

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

// patience is a heartbeat period that no load of a test machine outlasts.
const patience = time.Hour

// waitMirror is a mirror with one counter, that was published once.
func waitMirror(t testing.TB, o Options) (*Writer, *Reader, Handle) {
	t.Helper()
	if o.Path == "" {
		o.Path = mirrorPath(t)
	}
	if o.HeartbeatPeriod == 0 {
		o.HeartbeatPeriod = patience
	}
	w := mustCreate(t, o)
	h := mustAdd(t, w, Entry{Name: "a", Kind: "flow"})
	publishOne(w, h, patterned(1))
	return w, mustOpen(t, o.Path), h
}

// watched is a sleeper whose sleeps slept is told: until when each was to last, and the result that
// ended it.
func watched(r *Reader, slept func(until int64, result syscall.Errno)) *sleeper {
	s := newSleeper(r)
	s.futex = func(word *uint32, value uint32, until int64, bits uint32) syscall.Errno {
		result := futexWait(word, value, until, bits)
		slept(until, result)
		return result
	}
	return s
}

// sound is a sleeper that does not look by itself: it must be woken.
func sound(t *testing.T, r *Reader) *sleeper {
	s := newSleeper(r)
	s.futex = func(word *uint32, value uint32, until int64, bits uint32) syscall.Errno {
		result := futexWait(word, value, Now()+int64(time.Minute), bits)
		if result == syscall.ETIMEDOUT {
			t.Error("slept for a minute: nobody woke him")
		}
		return result
	}
	return s
}

// Waiters with random thresholds run beside a writer that never stops. Each must return a value that
// reaches its threshold. A waiter that sleeps until its own next look, although a cycle had reached its
// threshold, has missed a wake. That holds on a loaded machine too.
func TestWaitMissesNoWake(t *testing.T) {
	const waiters = 8
	each, random := 10000/waiters, seed.Rand(t)
	if testing.Short() {
		each = 500
	}
	w, r, h := waitMirror(t, Options{})
	if err := r.Wakeable(); err != nil {
		t.Fatal(err)
	}
	ended := make([]atomic.Int64, 1<<22) // by value: when the cycle that showed it had ended
	var begun atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	pauses := rand.New(rand.NewPCG(random.Uint64(), 0))
	ctx, ends := context.WithCancel(t.Context())
	go func() {
		defer close(stopped)
		defer ends() // for waiters that are left when it has counted as far as it can
		for n := uint64(2); n < uint64(len(ended)); n++ {
			begun.Store(n)
			publishOne(w, h, patterned(n))
			ended[n].Store(Now())
			select {
			case <-stop:
				return
			default:
			}
			// From none to longer than a waiter needs to fall asleep.
			if d := time.Duration(pauses.ExpFloat64() * float64(50*time.Microsecond)); d > 10*time.Microsecond {
				time.Sleep(d)
			}
		}
	}()
	type sleep struct {
		threshold uint64
		until     int64
	}
	var mu sync.Mutex
	var out []sleep // sleeps that no wake ended
	var slept, woken atomic.Uint64
	var group sync.WaitGroup
	for range waiters {
		steps := rand.New(rand.NewPCG(random.Uint64(), 1))
		group.Go(func() {
			last := uint64(1)
			for i := 0; i < each || woken.Load() < uint64(each); i++ { // until enough was tried
				threshold := last + 1 + steps.Uint64N(8)
				s := watched(r, func(until int64, result syscall.Errno) {
					slept.Add(1)
					switch result {
					case 0:
						woken.Add(1)
					case syscall.ETIMEDOUT:
						mu.Lock()
						out = append(out, sleep{threshold, until})
						mu.Unlock()
					}
				})
				v, err := s.await(ctx, h, r.reaches(h, threshold))
				if err != nil || v.Packets < threshold || v != patterned(v.Packets) || v.Packets > begun.Load() {
					t.Errorf("waiting for %d: %v, %v", threshold, v, err)
					return
				}
				last = v.Packets
			}
		})
	}
	group.Wait()
	close(stop)
	<-stopped
	for _, s := range out {
		if at := ended[s.threshold].Load(); at != 0 && at < s.until {
			t.Errorf("slept until %v after the cycle that reached %d had ended", time.Duration(s.until-at), s.threshold)
		}
	}
	t.Logf("%d waits or more, %d sleeps, %d woken, %d slept out, %d cycles", waiters*each, slept.Load(), woken.Load(), len(out), begun.Load())
}

// Wait must never return before its deadline, however often it is woken meanwhile. (fi_cntr_wait
// of libfabric for EFA gives up after five tries, which take 31 µs, whatever the time-out.)
func TestWaitIsNeverEarly(t *testing.T) {
	for _, tt := range []struct {
		name   string
		group  int
		cycles bool
	}{{"woken", 0, true}, {"asleep", 0, false}, {"looking", -1, true}, {"looking at nothing new", -1, false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, r, h := waitMirror(t, Options{WaitGroup: tt.group})
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for n := uint64(2); tt.cycles; n++ {
					publishOne(w, h, patterned(n))
					select {
					case <-stop:
						return
					case <-time.After(200 * time.Microsecond):
					}
				}
			}()
			for _, d := range []time.Duration{10 * time.Microsecond, 31 * time.Microsecond, time.Millisecond, 20 * time.Millisecond, 600 * time.Millisecond} {
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), d)
				v, err := r.Wait(ctx, h, math.MaxUint64)
				took := time.Since(start)
				cancel()
				if err != context.DeadlineExceeded || took < d {
					t.Errorf("%v: %v after %v", d, err, took)
				}
				if v == (Value{}) {
					t.Errorf("%v: no value", d)
				}
				t.Logf("%v late", took-d)
			}
			close(stop)
			<-stopped
		})
	}
}

// Wait does not sleep if its context has ended, and wakes if the context ends.
func TestWaitEndsWithItsContext(t *testing.T) {
	for _, group := range []int{0, -1} {
		_, r, h := waitMirror(t, Options{WaitGroup: group})
		ctx, cancel := context.WithCancel(t.Context())
		s := sound(t, r)
		s.hook = func(step string) {
			if step == "wait-asleep" {
				time.AfterFunc(5*time.Millisecond, cancel)
			}
		}
		if _, err := s.await(ctx, h, r.reaches(h, 2)); err != context.Canceled {
			t.Errorf("group %d: %v", group, err)
		}
		if v, err := r.Wait(ctx, h, 2); err != context.Canceled || v != patterned(1) {
			t.Errorf("group %d: %v, %v", group, v, err)
		}
		if v, err := r.Wait(ctx, h, 1); err != nil || v != patterned(1) {
			t.Errorf("group %d: reached before it ended: %v, %v", group, v, err)
		}
	}
}

// A waiter starts just when the cycle ends that it waits for. It must be woken, or not
// fall asleep at all.
func TestWaitFallsAsleepInTime(t *testing.T) {
	rounds, random := uint64(10000), seed.Rand(t)
	if testing.Short() {
		rounds = 1000
	}
	w, r, h := waitMirror(t, Options{})
	from, to := make(chan uint64), make(chan int64)
	var looked atomic.Uint64
	results := make(map[syscall.Errno]int)
	go func() {
		for threshold := range from {
			latest := int64(0)
			s := watched(r, func(until int64, result syscall.Errno) {
				results[result]++
				if result == syscall.ETIMEDOUT {
					latest = until
				}
			})
			v, err := s.await(t.Context(), h, func(v Value) (bool, error) {
				if s.page.Load() != nil {
					looked.Store(threshold)
				}
				return v.Packets >= threshold, nil
			})
			if err != nil || v.Packets != threshold {
				t.Errorf("waiting for %d: %v, %v", threshold, v, err)
			}
			to <- latest
		}
	}()
	defer close(from)
	for n := uint64(2); n < rounds; n++ {
		from <- n
		for i := 1; looked.Load() != n; i++ {
			if i%10000 == 0 {
				runtime.Gosched()
			}
		}
		// From there to its sleep, and no longer: up to some microseconds, mostly less.
		for spin := random.Uint64N(1 << random.Uint64N(13)); spin > 0; spin-- {
			looked.Load()
		}
		w.waker.due = 0 // the last wake is long ago
		publishOne(w, h, patterned(n))
		ended := Now()
		if until := <-to; ended < until {
			t.Fatalf("round %d: slept until %v after the cycle had ended", n, time.Duration(until-ended))
		}
	}
	t.Logf("%d rounds: %d woken, %d not asleep yet", rounds, results[0], results[syscall.EAGAIN])
	if results[0] == 0 {
		t.Error("nobody slept: nothing was tried")
	}
}

// Each order of steps that the protocol relies on, one by one: stop a waiter at one of
// its steps, and let the writer end the cycle that it waits for, completely or up to the
// point between the word and the wake. In no case may the waiter sleep on.
func TestWaitSleepsThroughNoCycleInAnyInterleaving(t *testing.T) {
	w, r, h := waitMirror(t, Options{})
	n := uint64(1)
	for _, at := range []string{"wait-word", "wait-value", "wait-asleep"} {
		for _, halfway := range []bool{false, true} {
			n++
			reached, goOn := make(chan struct{}), make(chan struct{})
			var slept int64
			held := false
			s := watched(r, func(until int64, result syscall.Errno) {
				if result == syscall.ETIMEDOUT {
					slept = until
				}
			})
			hold := func(step string) {
				if step == at && !held && s.page.Load() != nil {
					held = true
					close(reached)
					<-goOn
				}
			}
			s.hook = hold
			done := make(chan error, 1)
			go func() {
				v, err := s.await(t.Context(), h, func(v Value) (bool, error) {
					hold("wait-value")
					return v.Packets >= n, nil
				})
				if err == nil && v != patterned(n) {
					t.Errorf("at %s: %v", at, v)
				}
				done <- err
			}()
			<-reached
			w.waker.due = 0
			w.waker.hook = func(step string) {
				if halfway && step == "wake-word" {
					close(goOn)
					time.Sleep(5 * time.Millisecond) // it sleeps by now, if it does
				}
			}
			publishOne(w, h, patterned(n))
			w.waker.hook = nil
			ended := Now()
			if !halfway {
				close(goOn)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if slept > ended {
				t.Errorf("held at %s, writer halfway %v: slept for %v after the cycle had ended", at, halfway, time.Duration(slept-ended))
			}
		}
	}
}
