package flowrows

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/internal/bench"
)

// setRows are the rows about a whole set of n flows. label is n in their names.
func (s *site) setRows(n int, label string, full bool, start, apply float64) (rows []bench.Row) {
	for _, r := range []struct {
		name  string
		bound float64
		open  func(ctx context.Context, n int) (*bench.Sides, error)
	}{
		{"set.start." + label, start, s.startOfSet},
		{"set.apply.1of" + label, apply, s.applyOfOne},
	} {
		rows = append(rows, bench.Row{
			Name: r.name, Ref: "reading the YAML of the file into nodes", Bound: r.bound, Unit: "ns of CPU time, of all processes",
			Full: full, Rounds: 7, Openings: 1, Time: 5 * time.Minute, Release: s.close,
			Open: func(ctx context.Context, _ bench.Env) (*bench.Sides, error) { return r.open(ctx, n) },
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
			own, clockErr := cpuTime(pid)
			sum, err = sum+own, errors.Join(err, clockErr)
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
	file := first
	apply := func(ctx context.Context, to *subject) (int64, error) {
		if file == first {
			file = other
		} else {
			file = first
		}
		return s.command(ctx, "apply", "--file", file, "--socket", to.socket)
	}
	return sidesOfSet(one{timed: apply}.side(to), first, end), nil
}

// sidesOfSet compares a side with the floor of every command that takes a file.
func sidesOfSet(ours bench.Side, file string, end func() error) *bench.Sides {
	return &bench.Sides{Ours: ours, Ref: nodesOf(file), N: 1, Paced: true, MaxSpread: 0.5, Close: end}
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
