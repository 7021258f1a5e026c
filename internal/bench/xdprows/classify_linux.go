package xdprows

import (
	"context"
	"sync"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/classbench"
)

// withSet is an opener of sides that are made of a set.
func withSet(rules []classbench.Rule, packets []classbench.Packet, sides func(*set) (*bench.Sides, error)) opener {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			s, err := openSet(open, rules, packets)
			if err != nil {
				return nil, err
			}
			return sides(s)
		})
	}
}

func openSet(open *bench.Closers, rules []classbench.Rule, packets []classbench.Packet) (*set, error) {
	s, err := newSet(rules, packets)
	if err == nil {
		open.Add(s.close)
	}
	return s, err
}

// openMaskedHot compares the cost of one packet of n rules over so many masks with that of one lookup in a BPF hash, both
// above the empty program.
func openMaskedHot(n, masks int) opener {
	return lazily(func() opener {
		rules := classbench.Masked(n, masks, seed)
		return besideHash(rules, classbench.Points(rules, 1, seed), func(s *set, hash *rig) *bench.Sides {
			return &bench.Sides{
				Ours:  s.hot("flowtally_xdp"),
				Base:  s.hot("bench_empty"),
				Ref:   hash.side("bench_peer"),
				N:     runs,
				Turns: 4,
			}
		})
	})
}

// openMaskedSpread is openMaskedHot for the packets of a trace. peer is the program with the lookup, over one flow or over all
// at random, and empty the empty program of the same packets.
func openMaskedSpread(n, masks int, peer, empty string) opener {
	return lazily(func() opener {
		in := ofMasks(n, masks)
		return besideHash(in.rules, in.packets, func(s *set, hash *rig) *bench.Sides {
			return &bench.Sides{
				Ours: bench.Above(s.spread(traceOurs), s.spread(traceEmpty)),
				Ref:  bench.Above(hash.side(peer), hash.side(empty)),
				N:    tracePackets,
			}
		})
	})
}

// besideHash is an opener of sides that are made of a set and of 65,536 exact flows in a BPF hash.
func besideHash(rules []classbench.Rule, packets []classbench.Packet, sides func(*set, *rig) *bench.Sides) opener {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			s, err := openSet(open, rules, packets)
			if err != nil {
				return nil, err
			}
			peer, err := newRig(1 << 16)
			if err != nil {
				return nil, err
			}
			open.Add(peer.close)
			return sides(s, peer), nil
		})
	}
}

// openRanges compares rules with random ranges of ports with rules that have the same addresses and no ranges.
func openRanges() opener {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			ranges, masked := classbench.Ranges(1000, seed), classbench.Masked(1000, 24, seed)
			r, err := openSet(open, ranges, classbench.Points(ranges, tracePackets, seed))
			if err != nil {
				return nil, err
			}
			m, err := openSet(open, masked, classbench.Points(masked, tracePackets, seed))
			if err != nil {
				return nil, err
			}
			return &bench.Sides{
				Ours: r.spread(traceOurs),
				Ref:  m.spread(traceOurs),
				N:    tracePackets,
			}, nil
		})
	}
}

// openLinear compares the cost of a set above the empty program with the cost of the linear matcher.
func openLinear(generate func() input) opener {
	return lazily(func() opener {
		in := generate()
		return withSet(in.rules, in.packets, func(s *set) (*bench.Sides, error) {
			if err := s.fillLinear(inLinear(in.rules)); err != nil {
				return nil, err
			}
			return &bench.Sides{
				Ours:      s.spread(traceOurs),
				Base:      s.spread(traceEmpty),
				Ref:       bench.Fewer(16, s.spread(traceLinear)),
				N:         tracePackets,
				MaxSpread: 0.3, // the linear matcher sees another part of the trace in each round
			}, nil
		})
	})
}

// openAlone measures the cost of a set above the empty program, against that program.
func openAlone(generate func() input) opener {
	return lazily(func() opener {
		in := generate()
		return withSet(in.rules, in.packets, func(s *set) (*bench.Sides, error) {
			return &bench.Sides{
				Ours: bench.Above(s.spread(traceOurs), s.spread(traceEmpty)),
				Ref:  s.spread(traceEmpty),
				N:    tracePackets,
			}, nil
		})
	})
}

// openOther runs the whole program over a frame that none of n rules over so many masks can match.
func openOther(n, masks int, frame []byte) opener {
	return lazily(func() opener {
		rules := classbench.Masked(n, masks, seed)
		return withSet(rules, classbench.Points(rules, 1, seed), func(s *set) (*bench.Sides, error) {
			s.frame = frame
			return &bench.Sides{
				Ours:  s.hot("flowtally_xdp"),
				Ref:   s.hot("bench_empty"),
				N:     runs,
				Turns: 4,
			}, nil
		})
	})
}

// lazily generates the rules of a row when it is first opened, once.
func lazily(make func() opener) opener {
	once := sync.OnceValue(make)
	return func(ctx context.Context, env bench.Env) (*bench.Sides, error) { return once()(ctx, env) }
}
