package xdprows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

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
				Turns:     4,
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

// openLoad times the load of n rules until they decide the packets of a veth. The floor loads one rule, and n rules into
// plain BPF hashes.
func openLoad(n, masks int) opener {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		rules := classbench.Masked(n, masks, seed)
		return &bench.Sides{
			Ours: func(context.Context, int) (float64, error) { return load(rules, nil) },
			Ref: func(context.Context, int) (float64, error) {
				return load(rules[:1], func(open *bench.Closers) error { return loadHashes(open, rules) })
			},
			N:         1,
			Paced:     true,
			MaxSpread: 0.5,
		}, nil
	}
}

// load returns the CPU time that the process takes to load rules, to attach them to a veth, and for beside if that is not
// nil.
func load(rules []classbench.Rule, beside func(*bench.Closers) error) (ns float64, err error) {
	var open bench.Closers
	defer func() { err = errors.Join(err, open.Close()) }()

	before, err := bench.ProcessCPU()
	if err != nil {
		return 0, err
	}
	rs, _, err := install(rules)
	if err != nil {
		return 0, err
	}
	open.Add(rs.Destroy)
	if err := attach(&open, rs); err != nil {
		return 0, err
	}
	if beside != nil {
		if err := beside(&open); err != nil {
			return 0, err
		}
	}
	after, err := bench.ProcessCPU()
	return float64(after - before), err
}

// loadHashes loads rules as a program would that searches one hash for each mask: for each mask it makes a BPF hash,
// and gives it the rules in one batch.
func loadHashes(open *bench.Closers, rules []classbench.Rule) error {
	type rows struct {
		keys   []xdp.Key
		values []uint64 // the counter and the order
	}
	byMask := make(map[xdp.Key]*rows)
	for i := range rules {
		r := translate(&rules[i], i, uint32(i))
		of := byMask[r.Mask]
		if of == nil {
			of = new(rows)
			byMask[r.Mask] = of
		}
		of.keys = append(of.keys, r.Key)
		of.values = append(of.values, uint64(r.Order)<<32|uint64(r.Counter))
	}

	for _, of := range byMask {
		m, err := ebpf.NewMap(&ebpf.MapSpec{
			Type:       ebpf.Hash,
			KeySize:    uint32(binary.Size(of.keys[0])),
			ValueSize:  8,
			MaxEntries: uint32(len(of.keys)),
		})
		if err != nil {
			return fmt.Errorf("making the hash of a mask: %w", err)
		}
		open.Add(m.Close)
		if _, err := m.BatchUpdate(of.keys, of.values, nil); err != nil {
			return fmt.Errorf("filling the hash of a mask with %d rules: %w", len(of.keys), err)
		}
	}
	return nil
}
