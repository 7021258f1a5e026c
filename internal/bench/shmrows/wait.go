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
		return &bench.Sides{
			MaxSpread: 0.20, // as shm.visible
			Apart:     true,
			Ours: wakes(p,
				func(n uint64) {
					values[0] = value(n)
					m.w.BeginCycle()
					m.w.PublishBlock(0, &values)
					m.w.EndCycle(shm.Now())
				},
				func(n uint64) error {
					_, err := m.r.Wait(context.Background(), m.handles[0], n)
					return err
				}),
			Ref: wakes(p, word.wake, word.sleep),
		}, nil
	})
}

// errAwake: a thread that was to fall asleep did not.
var errAwake = errors.New("the waiter did not fall asleep")

// wakes makes a side of n wakes: sleep, on the other CPU, returns when wake has
// published that number. It returns the median. Numbers go on from round to round,
// because written words stay.
func wakes(p *twocpu.Peer, wake func(uint64), sleep func(uint64) error) bench.Side {
	last := uint64(1)
	var times []float64
	return func(_ context.Context, n int) (float64, error) {
		first, end := last+1, last+uint64(n)
		last = end
		var turn, woken atomic.Uint64 // the number that it is about
		var at atomic.Int64           // when it woke
		thread, slept := make(chan int, 1), make(chan error, 1)
		err := p.Start(func() {
			thread <- gettid()
			for i := first; i <= end; i++ {
				turn.Store(i)
				if err := sleep(i); err != nil {
					slept <- err
					woken.Store(end) // the other side does not wait for the rest
					return
				}
				at.Store(shm.Now())
				woken.Store(i)
			}
			slept <- nil
		})
		if err != nil {
			return 0, err
		}
		state, err := os.Open(fmt.Sprintf("/proc/self/task/%d/stat", <-thread))
		if err != nil {
			return 0, fmt.Errorf("watching the waiter: %w", err)
		}
		defer state.Close()
		times = times[:0]
		for i := first; i <= end; i++ {
			for turn.Load() < i && woken.Load() < i {
				runtime.Gosched()
			}
			if err := asleep(state, &woken, i); err != nil {
				for ; i <= end; i++ { // so that its thread ends
					wake(end)
				}
				return 0, errors.Join(err, <-slept)
			}
			start := shm.Now()
			wake(i)
			for woken.Load() < i {
			}
			times = append(times, float64(at.Load()-start))
		}
		if err := <-slept; err != nil {
			return 0, fmt.Errorf("sleeping: %w", err)
		}
		slices.Sort(times)
		return times[len(times)/2], nil
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
