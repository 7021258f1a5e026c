package xdprows

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/classbench"
	"github.com/flowtally/flowtally/xdp"
)

// lpm is the program of bpf/lpm.bpf.c with prefixes.
type lpm struct{ coll *ebpf.Collection }

// lpmKey is struct lpm_key.
type lpmKey struct {
	Bits    uint32
	Address [4]byte
}

// newLPM loads the trie of the destination prefixes of rules, and a counter for each.
func newLPM(rules []classbench.Rule) (*lpm, error) {
	spec, err := loadLpm()
	if err != nil {
		return nil, fmt.Errorf("reading the object of the LPM trie: %w", err)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("loading the object of the LPM trie: %w", err)
	}

	for i, r := range rules {
		key := lpmKey{Bits: uint32(r.Dst.Len)}
		binary.BigEndian.PutUint32(key.Address[:], r.Dst.Addr)
		if err := coll.Maps["lpm_prefixes"].Put(key, uint32(i)); err != nil {
			coll.Close()
			return nil, fmt.Errorf("putting a prefix of %d bits into the LPM trie: %w", r.Dst.Len, err)
		}
	}
	return &lpm{coll}, nil
}

func (l *lpm) close() error {
	l.coll.Close()
	return nil
}

// counts returns the counts of n prefixes.
func (l *lpm) counts(n int) ([]xdp.Pair, error) {
	sums := make([]xdp.Pair, n)
	var values []struct{ Packets, Bytes uint64 } // by CPU
	for i := range sums {
		if err := l.coll.Maps["lpm_counts"].Lookup(uint32(i), &values); err != nil {
			return nil, fmt.Errorf("reading a counter of the LPM trie: %w", err)
		}
		for _, v := range values {
			sums[i].Packets += v.Packets
			sums[i].Bytes += v.Bytes
		}
	}
	return sums, nil
}

// openLPM compares the cost of n prefixes above the empty program with that of the kernel's LPM trie.
func openLPM(n int) opener {
	return lazily(func() opener {
		in := ofPrefixes(n)
		return func(ctx context.Context, _ bench.Env) (*bench.Sides, error) {
			return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
				s, err := openSet(open, in.rules, in.packets)
				if err != nil {
					return nil, err
				}
				trie, err := newLPM(in.rules)
				if err != nil {
					return nil, err
				}
				open.Add(trie.close)
				if err := s.putBehind(traceLPM, trie.coll.Programs["lpm"]); err != nil {
					return nil, err
				}
				if err := s.agreeWith(ctx, trie); err != nil {
					return nil, err
				}

				return &bench.Sides{
					Ours:      s.spread(traceOurs),
					Base:      s.spread(traceEmpty),
					Ref:       s.spread(traceLPM),
					N:         tracePackets / 8, // a part of the trace. The packets are random, so any part costs the same
					MaxSpread: 0.3,
				}, nil
			})
		}
	})
}

// agreeWith runs the trace through the classifier and through the trie, and compares the counts of each prefix.
func (s *set) agreeWith(ctx context.Context, trie *lpm) error {
	for _, which := range []int{traceOurs, traceLPM} {
		if _, err := s.spread(which)(ctx, tracePackets); err != nil {
			return err
		}
	}

	ours := make([]xdp.Pair, len(s.counters))
	if err := s.rules.Read(s.counters, ours); err != nil {
		return err
	}
	theirs, err := trie.counts(len(s.counters))
	if err != nil {
		return err
	}
	var packets uint64
	for i := range ours {
		if ours[i] != theirs[i] {
			return fmt.Errorf("prefix %d: the classifier counted %+v, the LPM trie %+v", i, ours[i], theirs[i])
		}
		packets += ours[i].Packets
	}
	if packets != tracePackets {
		return fmt.Errorf("%d packets of the trace were counted of %d", packets, tracePackets)
	}
	return nil
}
