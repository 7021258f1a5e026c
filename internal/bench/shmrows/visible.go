package shmrows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

// A round trip is too short to be timed alone: this many are timed together,
// and the median of those times is what a round says (p50).
const tripsTimed = 8

// openVisible: how long after a publish a reader on the other CPU that does
// nothing but read sees the value. There and back, so that one clock does: each
// CPU writes a mirror of its own and reads the other's. Against a bare word on a
// cache line of its own in each direction.
func openVisible(_ context.Context, env bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		p, err := newPeer(open, env)
		if err != nil {
			return nil, err
		}
		here, err := newLane(open)
		if err != nil {
			return nil, err
		}
		there, err := newLane(open)
		if err != nil {
			return nil, err
		}
		type line struct {
			atomic.Uint64
			_ [15]uint64
		}
		ping, pong := new(line), new(line)
		return &bench.Sides{
			// Waiting for another CPU is by nature uneven.
			MaxSpread: 0.20,
			Ours: roundTrips(p,
				func(n uint64) { here.publish(n) }, func(n uint64) error { return there.wait(n) },
				func(n uint64) { there.publish(n) }, func(n uint64) error { return here.wait(n) }),
			Ref: roundTrips(p,
				func(n uint64) { ping.Store(n) }, func(n uint64) error { return spin(&pong.Uint64, n) },
				func(n uint64) { pong.Store(n) }, func(n uint64) error { return spin(&ping.Uint64, n) }),
		}, nil
	})
}

// errNoAnswer: the other CPU was silent for far longer than it can be.
var errNoAnswer = errors.New("no answer from the other CPU")

// patience bounds a wait, in reads.
const patience = 1 << 31

func spin(word *atomic.Uint64, n uint64) error {
	for range patience {
		if word.Load() >= n {
			return nil
		}
	}
	return errNoAnswer
}

// lane is a latency counter from one CPU to the other. The reader's part, which
// each read that finds a new value writes to, shares no line with the writer's.
type lane struct {
	w     *shm.Writer
	index uint32
	_     [128]byte
	c     shm.Counter
	_     [128]byte
}

func newLane(open *bench.Closers) (*lane, error) {
	m, err := newMirror(open, 0, 1)
	if err != nil {
		return nil, err
	}
	c, err := m.r.Counter(m.handles[0])
	if err != nil {
		return nil, err
	}
	m.w.BeginCycle()
	open.Add(func() error { m.w.EndCycle(shm.Now()); return nil })
	return &lane{w: m.w, index: m.handles[0].Index, c: c}, nil
}

func (l *lane) publish(n uint64) {
	l.w.PublishRecord(l.index, shm.Value{Packets: n, Bytes: n, SampledAt: int64(n)})
}

func (l *lane) wait(n uint64) error {
	for range patience {
		v, err := l.c.Load()
		if err != nil && !errors.Is(err, shm.ErrBusy) {
			return err
		}
		if v.Packets >= n && err == nil {
			return nil
		}
	}
	return errNoAnswer
}

// roundTrips makes a side of n round trips: here says something, there waits
// for it and answers, here waits for the answer. It returns the median of one
// way. Numbers go on from round to round, since what is written stays.
func roundTrips(p *peer, say func(uint64), hear func(uint64) error, answer func(uint64), listen func(uint64) error) bench.Side {
	last := uint64(1)
	var times []float64
	return func(_ context.Context, n int) (float64, error) {
		batches := max(n/tripsTimed, 1)
		first := last + 1
		last += 1 + uint64(batches*tripsTimed)
		end := last
		answered := make(chan error, 1)
		err := p.start(func() {
			for i := first; i <= end; i++ {
				if err := listen(i); err != nil {
					answered <- err
					return
				}
				answer(i)
			}
			answered <- nil
		})
		if err != nil {
			return 0, err
		}
		times = times[:0]
		at := first
		// The first trip waits for the other thread to wake up.
		say(at)
		if err := hear(at); err != nil {
			return 0, errors.Join(err, <-answered)
		}
		at++
		for range batches {
			start := shm.Now()
			for range tripsTimed {
				say(at)
				if err := hear(at); err != nil {
					return 0, errors.Join(err, <-answered)
				}
				at++
			}
			times = append(times, float64(shm.Now()-start)/(2*tripsTimed))
		}
		if err := <-answered; err != nil {
			return 0, fmt.Errorf("answering: %w", err)
		}
		slices.Sort(times)
		return times[len(times)/2], nil
	}
}
