package xdprows

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/flowtally/flowtally/internal/bench"
)

func openOne(context.Context, bench.Env) (*bench.Sides, error) {
	r, err := newRig(1)
	if err != nil {
		return nil, err
	}
	return &bench.Sides{
		Ours:  r.side(attachedForOne),
		Ref:   r.side("bench_empty"),
		N:     runs,
		Turns: 4,
		Close: r.close,
	}, nil
}

func openHot(context.Context, bench.Env) (*bench.Sides, error) {
	r, err := newRig(1 << 16)
	if err != nil {
		return nil, err
	}
	return &bench.Sides{
		Ours:  r.side("flowtally_xdp"),
		Ref:   r.side("bench_peer"),
		Base:  r.side("bench_empty"),
		N:     runs,
		Close: r.close,
	}, nil
}

func openSpread(context.Context, bench.Env) (*bench.Sides, error) {
	r, err := newRig(1 << 16)
	if err != nil {
		return nil, err
	}
	return &bench.Sides{
		Ours:  r.side("bench_ours_spread"),
		Ref:   r.side("bench_peer_spread"),
		Base:  r.side("bench_empty_spread"),
		N:     runs / 4,
		Close: r.close,
	}, nil
}

// openSMP: the peer CPU runs the program without a pause while ours is measured.
func openSMP(_ context.Context, env bench.Env) (*bench.Sides, error) {
	if env.Peer < 0 {
		return nil, errors.New("it takes two CPUs")
	}
	r, err := newRig(1)
	if err != nil {
		return nil, err
	}
	var total atomic.Uint64
	counting := func(_ context.Context, n int) error {
		if err := r.run(attachedForOne, n); err != nil {
			return err
		}
		total.Add(uint64(n))
		return nil
	}
	alone := timed(counting)
	both := func(ctx context.Context, n int) (float64, error) {
		p := startPeer(ctx, env.Peer, counting)
		ns, err := alone(ctx, n)
		return ns, errors.Join(err, p.stop())
	}
	return &bench.Sides{
		Ours:  both,
		Ref:   alone,
		N:     runs,
		Apart: true,
		Close: func() error {
			sum, err := r.counted()
			if err == nil && sum != total.Load() {
				err = fmt.Errorf("%d packets were counted of %d", sum, total.Load())
			}
			return errors.Join(err, r.close())
		},
	}, nil
}

func timed(run func(context.Context, int) error) bench.Side {
	return func(ctx context.Context, n int) (float64, error) {
		var err error
		ns, terr := bench.Timed(bench.ThreadCPU, func(n int) {
			err = bench.WithoutSignals(func() error { return run(ctx, n) })
		})(ctx, n)
		return ns, errors.Join(err, terr)
	}
}

// peer keeps another CPU busy with the same work.
type peer struct {
	done chan error
	end  atomic.Bool
}

func startPeer(ctx context.Context, cpu int, run func(context.Context, int) error) *peer {
	p := &peer{done: make(chan error, 1)}
	started := make(chan struct{})
	go func() {
		var err error
		perr := bench.Pinned(cpu, func() {
			err = bench.WithoutSignals(func() error {
				close(started)
				for !p.end.Load() {
					if err := run(ctx, runs/4); err != nil {
						return err
					}
				}
				return nil
			})
		})
		if perr != nil {
			select {
			case <-started:
			default:
				close(started)
			}
		}
		p.done <- errors.Join(err, perr)
	}()
	<-started
	return p
}

func (p *peer) stop() error {
	p.end.Store(true)
	return <-p.done
}
