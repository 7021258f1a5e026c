package flowrows

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/inject"
)

// setRows are the rows about a whole set of n flows. label is n in their names.
func (s *site) setRows(n int, label string, full bool, start, apply, lock float64) (rows []bench.Row) {
	for _, r := range []struct {
		name, unit string
		ours       string
		bound      float64
		open       func(ctx context.Context, n int) (*bench.Sides, error)
	}{
		{"set.start." + label, "ns of CPU time, of all processes", "a start until it counts: a file of " + label + " flows", start, s.startOfSet},
		{"set.apply.1of" + label, "ns of CPU time, of all processes", "an apply of a file in which one of " + label + " flows differs", apply, s.applyOfOne},
		{"set.lock." + label, "ns of CPU time, the longest piece", "a change of " + label + " flows: how long readers of the control lock are kept out", lock, s.lockOfSet},
	} {
		rows = append(rows, bench.Row{
			Name:     r.name,
			Ours:     r.ours,
			Ref:      "reading the YAML of the file into nodes",
			Bound:    r.bound,
			Unit:     r.unit,
			Full:     full,
			Rounds:   7,
			Openings: 1,
			Time:     5 * time.Minute,
			Release:  s.close,
			Open:     func(ctx context.Context, _ bench.Env) (*bench.Sides, error) { return r.open(ctx, n) },
		})
	}
	return rows
}

// startOfSet compares the start of an instance of n flows with reading its file.
func (s *site) startOfSet(_ context.Context, n int) (*bench.Sides, error) {
	cfg, err := s.config(n)
	if err != nil {
		return nil, err
	}
	file, err := write(cfg, n, usual)
	if err != nil {
		return nil, err
	}
	start := func(ctx context.Context, _ int) (float64, error) {
		to, end, err := s.launch(ctx, file)
		if err != nil {
			return 0, err
		}

		var sum int64
		for _, pid := range to.pids {
			own, clockErr := bench.CPUOf(pid)
			sum += own
			err = errors.Join(err, clockErr)
		}
		return float64(sum), errors.Join(err, end())
	}
	return sidesOfSet(start, file, nil), nil
}

// applyOfOne compares `flowtally apply` of a file in which one flow of n differs with reading that file.
func (s *site) applyOfOne(ctx context.Context, n int) (*bench.Sides, error) {
	cfg, err := s.config(n)
	if err != nil {
		return nil, err
	}
	first, err := write(cfg, n, usual)
	if err != nil {
		return nil, err
	}
	other, err := write(cfg, n, usual+1)
	if err != nil {
		return nil, err
	}
	to, end, err := s.launch(ctx, first)
	if err != nil {
		return nil, err
	}

	file, next := first, other // the instance has file
	apply := func(ctx context.Context, to *subject) (int64, error) {
		file, next = next, file
		return s.command(ctx, "apply", "--file", file, "--socket", to.socket)
	}
	return sidesOfSet(one{timed: apply}.side(to), first, end), nil
}

// lockOfSet compares the longest time for which a change of n flows keeps the readers of the control lock out with
// reading the file of these flows. Each round takes an instance of its own through the lifetime of n flows, under which
// the mirror grows.
func (s *site) lockOfSet(_ context.Context, n int) (*bench.Sides, error) {
	cfg, err := s.config(2 * n)
	if err != nil {
		return nil, err
	}
	cfg.Mirror.Counters = 0
	file, err := write(cfg, n, usual)
	if err != nil {
		return nil, err
	}

	life := newLifetime(n)
	ours := func(ctx context.Context, _ int) (float64, error) {
		var held longest
		var e *engine.Engine
		err := s.ground.ns.Do(func() (err error) {
			e, err = engine.New(inject.Closed(ctx, held.note), cfg, engine.Options{})
			return err
		})
		if err != nil {
			return 0, err
		}

		held.take() // what the start took is no change
		err = life.run(ctx, e)
		ns, clockErr := held.take()
		return float64(ns), errors.Join(err, clockErr, e.Close(), os.Remove(cfg.Mirror.Path))
	}
	return sidesOfSet(ours, file, nil), nil
}

// lifetime is a set of flows in the forms that it has from its coming to its end.
type lifetime struct {
	added    []flow.Flow
	labelled []flow.Flow // another label
	altered  []flow.Flow // and another match
	names    []string
}

func newLifetime(n int) *lifetime {
	l := &lifetime{
		added:    flows(n),
		labelled: flows(n),
		altered:  flows(n),
		names:    make([]string, n),
	}
	for i := range n {
		l.names[i] = l.added[i].Name
		l.labelled[i].Labels = map[string]string{"customer": "b"}
		l.altered[i].Labels = l.labelled[i].Labels
		l.altered[i].Match.TCP.Ports.Dst.Value++
	}
	return l
}

// run adds the flows to an instance, changes them twice and removes them.
func (l *lifetime) run(ctx context.Context, e *engine.Engine) error {
	if _, err := e.AddFlows(ctx, l.added...); err != nil {
		return err
	}
	if _, err := e.SetFlows(ctx, l.labelled, dataplane.SetOptions{}); err != nil {
		return err
	}
	if _, err := e.SetFlows(ctx, l.altered, dataplane.SetOptions{}); err != nil {
		return err
	}
	return e.RemoveFlows(ctx, l.names...)
}

// longest is the most CPU time that this process has spent while the holder of the control lock kept readers out.
type longest struct {
	mu   sync.Mutex
	ns   int64 // the longest so far
	from int64 // when the holder has closed the lock, by the clock of the process
	err  error // of reading the clock
}

// note is called by the holder of the lock.
func (l *longest) note(closed bool) {
	now, err := bench.ProcessCPU()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = errors.Join(l.err, err)
	if closed {
		l.from = now
	} else {
		l.ns = max(l.ns, now-l.from)
	}
}

// take returns the longest time since the take before.
func (l *longest) take() (ns int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ns, l.ns = l.ns, 0
	return ns, l.err
}

// sidesOfSet compares a side with the floor of every command that takes a file.
func sidesOfSet(ours bench.Side, file string, end func() error) *bench.Sides {
	return &bench.Sides{
		Ours:      ours,
		Ref:       nodesOf(file),
		N:         1,
		Paced:     true,
		MaxSpread: 0.5,
		Close:     end,
	}
}

// nodesOf reads a file into the tree of its YAML. The heap is the same each time: the bench collects nothing by itself.
func nodesOf(file string) bench.Side {
	return func(context.Context, int) (float64, error) {
		runtime.GC()
		before, err := bench.ThreadCPU()
		if err != nil {
			return 0, err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, fmt.Errorf("reading a configuration: %w", err)
		}
		var tree yaml.Node
		if err := yaml.Load(text, &tree); err != nil {
			return 0, fmt.Errorf("reading a configuration: %w", err)
		}
		after, err := bench.ThreadCPU()
		return float64(after - before), err
	}
}
