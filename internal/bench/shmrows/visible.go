package shmrows

import (
	"context"
	"errors"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/twocpu"
	"github.com/flowtally/flowtally/shm"
)

// openVisible: how long after a publish a reader on the other CPU that does
// nothing but read sees the value. There and back, so that one clock does: each
// CPU writes a mirror of its own and reads the other's. Against a bare word on a
// cache line of its own in each direction. Trips take turns over several lines,
// because how far a line travels depends on its address.
func openVisible(_ context.Context, env bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		p, err := twocpu.NewPeer(open, env)
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
		return &bench.Sides{
			Ours: twocpu.OneWay(twocpu.RoundTrips(p, twocpu.Ends{
				Say:   here.publish,
				Hear:  there.wait,
				Reply: twocpu.Replier(here.wait, there.publish),
			})),
			Ref:       twocpu.OneWay(twocpu.Words(p)),
			MaxSpread: 0.20, // waiting for another CPU is by nature uneven
			Apart:     true,
		}, nil
	})
}

// lane is latency counters from one CPU to the other, as far from each other as
// the words of a twocpu.Lane. The reader's part, which each read that finds a new
// value writes to, shares no line with the writer's.
type lane struct {
	w     *shm.Writer
	index [twocpu.Lines]uint32
	_     [128]byte
	c     [twocpu.Lines]shm.HandleCounter
	_     [128]byte
}

func newLane(open *bench.Closers) (*lane, error) {
	m, err := newMirror(open, 0, 2*twocpu.Lines)
	if err != nil {
		return nil, err
	}
	l := &lane{w: m.w}
	for i := range twocpu.Lines {
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
	l.w.PublishRecord(l.index[n%twocpu.Lines], shm.Value{Packets: n, Bytes: n, SampledAt: int64(n)})
}

func (l *lane) wait(n uint64) error {
	c := &l.c[n%twocpu.Lines]
	for range twocpu.Patience {
		v, err := c.Load()
		if err != nil && !errors.Is(err, shm.ErrBusy) {
			return err
		}
		if v.Packets >= n && err == nil {
			return nil
		}
	}
	return twocpu.ErrNoReply
}
