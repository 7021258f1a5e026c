package shmrows

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/twocpu"
	"github.com/flowtally/flowtally/shm"
)

// openWait: from before a publish on this CPU until a reader that sleeps in Wait
// on the other has the value in hand, against a word and a bare futex, shared and
// mapped alike. Each wake begins when the sleeper's thread is seen asleep.
func openWait(_ context.Context, env bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		p, err := twocpu.NewPeer(open, env)
		if err != nil {
			return nil, err
		}
		m, err := newMirror(open, shm.BlockLen, 0)
		if err != nil {
			return nil, err
		}
		if err := m.r.Wakeable(); err != nil {
			return nil, err
		}
		word, err := newSharedWord(open)
		if err != nil {
			return nil, err
		}

		values := block(1)
		publish := func(n uint64) {
			values[0] = value(n)
			m.w.BeginCycle()
			m.w.PublishBlock(0, &values)
			m.w.EndCycle(shm.Now())
		}
		wait := func(n uint64) error {
			_, err := m.r.Wait(context.Background(), m.handles[0], n)
			return err
		}
		return &bench.Sides{
			Ours:      wakes(p, publish, wait),
			Ref:       wakes(p, word.wake, word.sleep),
			MaxSpread: 0.20, // as shm.visible
			Apart:     true,
		}, nil
	})
}

// errAwake: a thread that was to fall asleep did not.
var errAwake = errors.New("the waiter did not fall asleep")

// wakes makes a side of n wakes: sleep, on the other CPU, returns when wake has published that number. It returns the
// median. Numbers go on from round to round, because written words stay; the first is 2.
func wakes(p *twocpu.Peer, wake func(uint64), sleep func(uint64) error) bench.Side {
	last := uint64(1)
	var times []float64
	return func(_ context.Context, n int) (float64, error) {
		first, end := last+1, last+uint64(n)
		last = end
		s := newSleeper()
		if err := p.Start(func() { s.run(first, end, sleep) }); err != nil {
			return 0, err
		}

		var err error
		if times, err = s.wakeEach(first, end, wake, times[:0]); err != nil {
			s.release(end, wake)
			return 0, errors.Join(err, <-s.ended)
		}
		if err := <-s.ended; err != nil {
			return 0, fmt.Errorf("sleeping: %w", err)
		}
		slices.Sort(times)
		return times[len(times)/2], nil
	}
}

// sleeper is a thread on the other CPU that sleeps until each of some numbers.
type sleeper struct {
	thread chan int      // gets its id
	turn   atomic.Uint64 // the number that it is about to sleep for
	woken  atomic.Uint64 // the last number that it has seen
	at     atomic.Int64  // when that was
	ended  chan error
}

func newSleeper() *sleeper {
	return &sleeper{thread: make(chan int, 1), ended: make(chan error, 1)}
}

// run sleeps for the numbers first to end.
func (s *sleeper) run(first, end uint64, sleep func(uint64) error) {
	s.thread <- gettid()
	for i := first; i <= end; i++ {
		s.turn.Store(i)
		if err := sleep(i); err != nil {
			s.ended <- err
			s.woken.Store(end) // the other side does not wait for the rest
			return
		}
		s.at.Store(shm.Now())
		s.woken.Store(i)
	}
	s.ended <- nil
}

// wakeEach wakes the sleeper for the numbers first to end, each time when it is seen asleep. It appends to times what
// each wake took.
func (s *sleeper) wakeEach(first, end uint64, wake func(uint64), times []float64) ([]float64, error) {
	state, err := os.Open(fmt.Sprintf("/proc/self/task/%d/stat", <-s.thread))
	if err != nil {
		return times, fmt.Errorf("watching the waiter: %w", err)
	}
	defer state.Close()

	for i := first; i <= end; i++ {
		for s.turn.Load() < i && s.woken.Load() < i {
			runtime.Gosched()
		}
		if err := asleep(state, &s.woken, i); err != nil {
			return times, err
		}
		start := shm.Now()
		wake(i)
		for s.woken.Load() < i {
		}
		times = append(times, float64(s.at.Load()-start))
	}
	return times, nil
}

// release wakes the sleeper, for all of its numbers, until it has ended: Peer runs nothing else before.
func (s *sleeper) release(end uint64, wake func(uint64)) {
	for s.woken.Load() < end {
		wake(end)
		runtime.Gosched()
	}
}

// asleep returns when the thread of that stat file sleeps, or has given up.
func asleep(stat *os.File, woken *atomic.Uint64, turn uint64) error {
	var buf [256]byte
	for range 1_000_000 {
		n, err := stat.ReadAt(buf[:], 0)
		if n == 0 {
			return fmt.Errorf("watching the waiter: %w", err)
		}
		// The state follows the name, which may hold anything but ends last.
		for i := n - 1; i > 0; i-- {
			if buf[i] == ')' && i+2 < n {
				if buf[i+2] == 'S' || woken.Load() >= turn {
					return nil
				}
				break
			}
		}
	}
	return errAwake
}

// newSharedWord makes a word in a file of the tmpfs, mapped as a mirror is: by
// the one side to write, by the other to read.
func newSharedWord(open *bench.Closers) (*sharedWord, error) {
	dir, err := open.MirrorDir()
	if err != nil {
		return nil, err
	}
	return mapWord(open, filepath.Join(dir, "word"))
}
