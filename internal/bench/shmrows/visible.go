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
// and a round is the median of these times (p50).
const tripsTimed = 8

// openVisible: how long after a publish a reader on the other CPU that does
// nothing but read sees the value. There and back, so that one clock does: each
// CPU writes a mirror of its own and reads the other's. Against a bare word on a
// cache line of its own in each direction. Trips take turns over several lines,
// because how far a line travels depends on its address.
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
		ping, pong := new(bareLane), new(bareLane)
		return &bench.Sides{
			// Waiting for another CPU is by nature uneven.
			MaxSpread: 0.20,
			Apart:     true,
			Ours: roundTrips(p,
				func(n uint64) { here.publish(n) }, func(n uint64) error { return there.wait(n) },
				func(n uint64) { there.publish(n) }, func(n uint64) error { return here.wait(n) }),
			Ref: roundTrips(p,
				func(n uint64) { ping.publish(n) }, func(n uint64) error { return pong.wait(n) },
				func(n uint64) { pong.publish(n) }, func(n uint64) error { return ping.wait(n) }),
		}, nil
	})
}

// errNoReply: the other CPU was silent for far longer than it can be.
var errNoReply = errors.New("no reply from the other CPU")

// patience bounds a wait, in reads.
const patience = 1 << 31

// lines is how many lines a lane has.
const lines = 8

// bareLane is words from one CPU to the other.
type bareLane [lines]struct {
	atomic.Uint64
	_ [15]uint64
}

func (l *bareLane) publish(n uint64) { l[n%lines].Store(n) }

func (l *bareLane) wait(n uint64) error {
	word := &l[n%lines]
	for range patience {
		if word.Load() >= n {
			return nil
		}
	}
	return errNoReply
}

// lane is latency counters from one CPU to the other, as far from each other as
// the words of a bareLane. The reader's part, which each read that finds a new
// value writes to, shares no line with the writer's.
type lane struct {
	w     *shm.Writer
	index [lines]uint32
	_     [128]byte
	c     [lines]shm.Counter
	_     [128]byte
}

func newLane(open *bench.Closers) (*lane, error) {
	m, err := newMirror(open, 0, 2*lines)
	if err != nil {
		return nil, err
	}
	l := &lane{w: m.w}
	for i := range lines {
		h := m.handles[2*i]
		l.index[i] = h.Index
		if l.c[i], err = m.r.Counter(h); err != nil {
			return nil, err
		}
	}
	m.w.BeginCycle()
	open.Add(func() error { m.w.EndCycle(shm.Now()); return nil })
	return l, nil
}

func (l *lane) publish(n uint64) {
	l.w.PublishRecord(l.index[n%lines], shm.Value{Packets: n, Bytes: n, SampledAt: int64(n)})
}

func (l *lane) wait(n uint64) error {
	c := &l.c[n%lines]
	for range patience {
		v, err := c.Load()
		if err != nil && !errors.Is(err, shm.ErrBusy) {
			return err
		}
		if v.Packets >= n && err == nil {
			return nil
		}
	}
	return errNoReply
}

// roundTrips makes a side of n round trips: this CPU publishes a number, the other
// CPU waits for it and publishes it back, this CPU waits for that. It returns the
// median of one way. Numbers go on from round to round, because written words stay.
func roundTrips(p *peer, say func(uint64), hear func(uint64) error, reply func(uint64), listen func(uint64) error) bench.Side {
	last := uint64(1)
	var times []float64
	return func(_ context.Context, n int) (float64, error) {
		batches := max(n/tripsTimed, 1)
		first := last + 1
		last += 1 + uint64(batches*tripsTimed)
		end := last
		replied := make(chan error, 1)
		err := p.start(func() {
			for i := first; i <= end; i++ {
				if err := listen(i); err != nil {
					replied <- err
					return
				}
				reply(i)
			}
			replied <- nil
		})
		if err != nil {
			return 0, err
		}
		times = times[:0]
		at := first
		// The first trip waits for the other thread to wake up.
		say(at)
		if err := hear(at); err != nil {
			return 0, errors.Join(err, <-replied)
		}
		at++
		for range batches {
			start := shm.Now()
			for range tripsTimed {
				say(at)
				if err := hear(at); err != nil {
					return 0, errors.Join(err, <-replied)
				}
				at++
			}
			times = append(times, float64(shm.Now()-start)/(2*tripsTimed))
		}
		if err := <-replied; err != nil {
			return 0, fmt.Errorf("replying: %w", err)
		}
		slices.Sort(times)
		return times[len(times)/2], nil
	}
}
