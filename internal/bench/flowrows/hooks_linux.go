package flowrows

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab"
)

// watched is how long a round of hooks.idle watches an instance: two looks at every hook, one each 2 s.
const watched = 4 * time.Second

// field is a network namespace with interfaces, on which an instance counts both directions of every one.
type field struct {
	n     int         // interfaces, when all are plugged
	ns    *lab.Netns  // of the interfaces and the instance
	far   *lab.Netns  // of the other ends
	pairs []*lab.Pair // plugged
	open  bench.Closers

	cfg      dataplane.Config
	instance *engine.Engine // nil: not running
}

// field makes the namespaces of n interfaces. plug makes the interfaces.
func (s *site) field(n int) (_ *field, err error) {
	g, err := s.prepare()
	if err != nil {
		return nil, err
	}
	f := &field{n: n}
	if f.ns, err = f.namespace(); err != nil {
		return nil, err
	}
	if f.far, err = f.namespace(); err != nil {
		return nil, errors.Join(err, f.open.Close())
	}

	name := lab.Unique("hooks-")
	f.cfg = dataplane.Config{
		Instance:   name,
		Backend:    "xdp",
		Interfaces: []dataplane.Interface{{Name: "h*"}},
		Mirror:     dataplane.MirrorConfig{Path: filepath.Join(g.dir, name+".mirror"), Counters: 64},
		Poll:       dataplane.PollConfig{Period: time.Second},
		XDP:        dataplane.XDPConfig{PinDir: filepath.Join(g.bpf, name), MaxFlows: 1024},
	}
	for i, d := range []flow.Direction{flow.Ingress, flow.Egress} {
		one := numbered(i)
		one.Direction = d
		f.cfg.Flows = append(f.cfg.Flows, one)
	}
	return f, nil
}

// namespace makes a network namespace, which goes when the field is closed.
func (f *field) namespace() (*lab.Netns, error) {
	ns, err := lab.NewNetns("")
	if err != nil {
		return nil, err
	}
	f.open.Add(ns.Close)
	return ns, nil
}

// plug makes interfaces until there are n.
func (f *field) plug(n int) error {
	for i := len(f.pairs); i < n; i++ {
		p, err := lab.NewPair(f.ns, f.far, fmt.Sprintf("h%d", i), fmt.Sprintf("f%d", i), lab.PairOptions{})
		if err != nil {
			return err
		}
		f.pairs = append(f.pairs, p)
	}
	return nil
}

// unplug removes the interfaces from the n-th on.
func (f *field) unplug(n int) error {
	var errs []error
	for _, p := range f.pairs[n:] {
		errs = append(errs, p.Close())
	}
	f.pairs = f.pairs[:n]
	return errors.Join(errs...)
}

func (f *field) start(ctx context.Context) error {
	return f.ns.Do(func() (err error) {
		f.instance, err = engine.New(ctx, f.cfg, engine.Options{})
		return err
	})
}

func (f *field) stop() error {
	if f.instance == nil {
		return nil
	}
	err := f.instance.Close()
	f.instance = nil
	return err
}

// awaitCounted returns when the instance counts every flow on n interfaces.
func (f *field) awaitCounted(ctx context.Context, n int) error {
	for {
		all, err := f.instance.Placements(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(p dataplane.Placement) bool { return len(p.Source.Devices) != n }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d interfaces to be counted on: %w", n, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (f *field) close() error {
	return errors.Join(f.stop(), f.open.Close())
}

// spent is the CPU time of this process while f runs. withCaller says that the calling thread's is part of it.
func spent(withCaller bool, f func() error) (int64, error) {
	now := bench.OthersCPU
	if withCaller {
		now = bench.ProcessCPU
	}
	before, err := now()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := now()
	return after - before, err
}

// hooks opens a row about most interfaces beside least. One instance runs at a time, because the clock is the
// process's. cost may leave it running.
func (s *site) hooks(most, least int, cost func(*field, context.Context) (int64, error)) (*bench.Sides, error) {
	ours, err := s.field(most)
	if err != nil {
		return nil, err
	}
	ref, err := s.field(least)
	if err != nil {
		return nil, errors.Join(err, ours.close())
	}
	side := func(f *field) bench.Side {
		return func(ctx context.Context, _ int) (float64, error) {
			ns, err := cost(f, ctx)
			return float64(ns) / float64(f.n), errors.Join(err, f.stop())
		}
	}
	return &bench.Sides{
		Ours:      side(ours),
		Ref:       side(ref),
		N:         1,
		Paced:     true,
		MaxSpread: 0.5,
		Close:     func() error { return errors.Join(ours.close(), ref.close()) },
	}, nil
}

// starting plugs the interfaces and starts the instance on them. It returns the CPU time of the start.
func (f *field) starting(ctx context.Context) (int64, error) {
	if err := f.plug(f.n); err != nil {
		return 0, err
	}
	ns, err := spent(true, func() error { return f.start(ctx) })
	if err == nil {
		err = f.awaitCounted(ctx, f.n)
	}
	return ns, err
}

// idle is the CPU time of an instance that counts no packet, for a second.
func (f *field) idle(ctx context.Context) (int64, error) {
	if _, err := f.starting(ctx); err != nil {
		return 0, err
	}
	ns, err := spent(false, func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watched):
			return nil
		}
	})
	return ns / int64(watched/time.Second), err
}

// ending is the CPU time of the end of an instance without kept pins.
func (f *field) ending(ctx context.Context) (int64, error) {
	if _, err := f.starting(ctx); err != nil {
		return 0, err
	}
	return spent(true, f.stop)
}

// burst is the CPU time in which a running instance takes interfaces that come at once, without the making of them.
func (f *field) burst(ctx context.Context) (int64, error) {
	if err := f.plug(1); err != nil {
		return 0, err
	}
	if err := f.unplug(1); err != nil {
		return 0, err
	}
	if err := f.start(ctx); err != nil {
		return 0, err
	}
	return spent(false, func() error {
		if err := f.plug(f.n); err != nil {
			return err
		}
		return f.awaitCounted(ctx, f.n)
	})
}

// hookRows are the rows about most interfaces beside least.
func (s *site) hookRows(most, least int) (rows []bench.Row) {
	for _, r := range []struct {
		name  string
		ours  string
		unit  string
		bound float64
		cost  func(*field, context.Context) (int64, error)
	}{
		{"start", "a start", "ns of CPU time per interface", 0.6, (*field).starting},
		{"burst", "interfaces that come at once", "ns of CPU time per interface", 1.5, (*field).burst},
		{"idle", "a second", "ns of CPU time per interface and second", 0.5, (*field).idle},
		{"stop", "an end", "ns of CPU time per interface", 2.0, (*field).ending},
	} {
		rows = append(rows, bench.Row{
			Name:     fmt.Sprintf("hooks.%s.%d", r.name, most),
			Ours:     fmt.Sprintf("%s, for each of %d interfaces", r.ours, most),
			Ref:      fmt.Sprintf("the same with %d interfaces", least),
			Bound:    r.bound,
			Unit:     r.unit,
			Full:     true,
			Rounds:   7,
			Openings: 1,
			Time:     20 * time.Minute,
			Release:  s.close,
			Open: func(context.Context, bench.Env) (*bench.Sides, error) {
				return s.hooks(most, least, r.cost)
			},
		})
	}
	return rows
}
