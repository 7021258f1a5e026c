package pollrows

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/shm"
	kernel "github.com/flowtally/flowtally/xdp"
)

// Each round of the idle rows sleeps idleFor.
const idleFor = time.Second

// openIdle runs an engine with so many flows, which XDP counts on a veth, and no packets, and a process that wakes as
// often. A round of either sleeps, and takes the CPU time that its process had meanwhile, in a second.
func openIdle(counters int) func(context.Context, bench.Env) (*bench.Sides, error) {
	return func(ctx context.Context, _ bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			r, rules, err := startAttached(ctx, open, counters)
			if err != nil {
				return nil, err
			}
			if n := len(rules.Attachments()); n != min(counters, 1) {
				return nil, fmt.Errorf("starting an instance of %d flows: it holds %d hooks", counters, n)
			}
			for r.Status().PollPeriod <= coldPeriod {
				if err := sleep(ctx, coldPeriod); err != nil {
					return nil, fmt.Errorf("waiting for the idle period: %w", err)
				}
			}
			floor, err := startIdleFloor(open, r.Status().PollPeriod, counters)
			if err != nil {
				return nil, err
			}
			return &bench.Sides{
				Ours:      idleSide(bench.ProcessCPU),
				Ref:       idleSide(func() (int64, error) { return bench.CPUOf(floor) }),
				N:         1,
				Paced:     true,
				MaxSpread: 1,
			}, nil
		})
	}
}

// idleSide is the CPU time of a process in a second.
func idleSide(clock bench.Clock) bench.Side {
	return func(ctx context.Context, _ int) (float64, error) {
		begun := time.Now()
		start, err := clock()
		if err != nil {
			return 0, err
		}
		if err := sleep(ctx, idleFor); err != nil {
			return 0, err
		}
		end, err := clock()
		return float64(end-start) / time.Since(begun).Seconds(), err
	}
}

// startAttached starts an engine whose flows XDP counts on a veth.
func startAttached(ctx context.Context, open *bench.Closers, flows int) (r *shm.Reader, rules *kernel.Datapath, err error) {
	dir, err := open.MirrorDir()
	if err != nil {
		return nil, nil, err
	}
	ns, err := lab.NewNetns("")
	if err != nil {
		return nil, nil, err
	}
	open.Add(ns.Close)
	link, err := lab.NewPair(ns, ns, "near", "far", lab.PairOptions{})
	if err != nil {
		return nil, nil, err
	}
	config := dataplane.Config{
		Instance:   "bench",
		Backend:    flow.XDP,
		Interfaces: []dataplane.Interface{{Name: link.A.Name}},
		Mirror:     dataplane.MirrorConfig{Path: filepath.Join(dir, "bench.mirror"), Counters: flows},
		XDP:        dataplane.XDPConfig{MaxFlows: max(1, flows)},
	}
	for i := range flows {
		m, err := flow.ParseMatch(fmt.Sprintf("ipv4 dst 10.0.%d.%d udp dport 1001", i>>8, i&0xff))
		if err != nil {
			return nil, nil, err
		}
		config.Flows = append(config.Flows, flow.Flow{Name: fmt.Sprintf("f%d", i), Match: m})
	}
	err = ns.Do(func() error {
		b, err := xdp.New(xdp.Options{
			Interfaces: config.Interfaces,
			Config:     config.XDP,
			Flows:      config.Flows,
			Logger:     slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		rules = b.Inspect().Rules
		e, err := engine.New(inject.Backends(ctx, b), config, engine.Options{})
		if err == nil {
			open.Add(e.Close)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if r, err = shm.OpenReader(config.Mirror.Path); err != nil {
		return nil, nil, err
	}
	open.Add(r.Close)
	return r, rules, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
