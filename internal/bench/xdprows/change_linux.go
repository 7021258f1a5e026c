package xdprows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/classbench"
	"github.com/flowtally/flowtally/xdp"
)

// spares are the rules that are added in turns.
const spares = 64

// openUpdate adds one masked rule to many others and to few. Its removal is no part of the time.
func openUpdate(many, few, masks int) opener {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			ours, err := updates(open, many, masks)
			if err != nil {
				return nil, err
			}
			ref, err := updates(open, few, masks)
			if err != nil {
				return nil, err
			}
			return &bench.Sides{
				Ours:      ours,
				Ref:       ref,
				N:         8,
				Paced:     true,
				MaxSpread: 0.5,
			}, nil
		})
	}
}

// updates is a side that adds rules to n others, which are attached, and takes the time until Add has returned: the
// rule decides packets then.
func updates(open *bench.Closers, n, masks int) (bench.Side, error) {
	rules := classbench.Masked(n+spares, masks, seed)
	rs, counters, err := install(rules[:n])
	if err != nil {
		return nil, err
	}
	open.Add(rs.Destroy)
	if err := attach(open, rs); err != nil {
		return nil, err
	}
	extra := make([]xdp.Rule, spares)
	for i := range extra {
		extra[i] = translate(&rules[n+i], n+i, counters[0])
	}
	return func(_ context.Context, times int) (float64, error) {
		var spent time.Duration
		for i := range times {
			rule := extra[i%spares]
			start := time.Now()
			if err := rs.Add(rule); err != nil {
				return 0, fmt.Errorf("adding one rule to %d: %w", n, err)
			}
			spent += time.Since(start)
			if err := rs.Remove(rule); err != nil {
				return 0, fmt.Errorf("removing one rule of %d: %w", n+1, err)
			}
		}
		return float64(spent.Nanoseconds()) / float64(times), nil
	}, nil
}

// attach attaches a rule set to a veth in a namespace of its own.
func attach(open *bench.Closers, rs *xdp.Datapath) error {
	ns, err := lab.NewNetns("")
	if err != nil {
		return err
	}
	open.Add(ns.Close)
	if _, err := lab.NewPair(ns, ns, "near", "far", lab.PairOptions{}); err != nil {
		return err
	}
	return ns.Do(func() error {
		_, err := rs.Attach("near", xdp.AttachOptions{Ingress: true})
		return err
	})
}

// openLoad loads n rules from nothing, until they decide the packets of a veth, against a second.
func openLoad(n, masks int) opener {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		rules := classbench.Masked(n, masks, seed)
		ours := func(context.Context, int) (_ float64, err error) {
			var open bench.Closers
			defer func() { err = errors.Join(err, open.Close()) }()
			start := time.Now()
			rs, _, err := install(rules)
			if err != nil {
				return 0, err
			}
			open.Add(rs.Destroy)
			if err := attach(&open, rs); err != nil {
				return 0, err
			}
			return float64(time.Since(start).Nanoseconds()), nil
		}
		second := func(context.Context, int) (float64, error) { return float64(time.Second.Nanoseconds()), nil }
		return &bench.Sides{
			Ours:      ours,
			Ref:       second,
			N:         1,
			Paced:     true,
			MaxSpread: 0.5,
		}, nil
	}
}
