package vethrows

import (
	"context"
	"fmt"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/xdp"
)

type opener = func(context.Context, bench.Env) (*bench.Sides, error)

// opened makes sides on a new site.
func opened(sides func(*site) (*bench.Sides, error)) opener {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			s, err := newSite(open)
			if err != nil {
				return nil, err
			}
			return sides(s)
		})
	}
}

// match returns the rule of a port that looks at the fields of k.
func (k key) match() func(port int) xdp.Rule {
	if k == bySource {
		return ofSource
	}
	return ofPort
}

// packets of a side in one round: the difference between 1,000 flows and one is a fiftieth of the way of a packet over
// a veth.
const packets = 1 << 16

// above is the cost of a side above another, which take turns in pieces of a millisecond: other work on a shared core
// adds more to some pieces than the difference between the two.
func above(side, base bench.Side) bench.Side {
	return func(ctx context.Context, n int) (float64, error) {
		const least, most = 512, 64
		pieces := min(max(n/least, 1), most)
		piece := func(s bench.Side) func() (float64, error) {
			return func() (float64, error) { return s(ctx, max(n/pieces, 1)) }
		}
		costs, err := bench.InTurns(pieces, piece(side), piece(base))
		if err != nil {
			return 0, err
		}
		return costs[0] - costs[1], nil
	}
}

// openDrop compares flows that drop with a table that drops, over by times fewer packets. Each side is above its own
// hook with one rule, or a program, that drops every packet.
func openDrop(rules ruleset, key key, by int) opener {
	return opened(func(s *site) (*bench.Sides, error) {
		ours, counted, err := s.flows(key.match(), true, xdp.ModeNative)
		if err != nil {
			return nil, err
		}
		oursOne, err := s.dropAll()
		if err != nil {
			return nil, err
		}
		theirs, err := s.counting(rules, "drop")
		if err != nil {
			return nil, err
		}
		theirsOne, err := s.nft(one, "drop", ports)
		if err != nil {
			return nil, err
		}
		return &bench.Sides{
			Ours:      above(exact(ours, counted), oursOne),
			Ref:       bench.Fewer(by, above(theirs, theirsOne)),
			N:         packets,
			MaxSpread: 0.5,
		}, nil
	})
}

// openPoint measures a table of n ports that drops, above one rule that drops every packet, against that rule.
func openPoint(rules ruleset, n, by int) opener {
	return opened(func(s *site) (*bench.Sides, error) {
		table, err := s.nft(rules, "drop", n)
		if err != nil {
			return nil, err
		}
		least, err := s.nft(one, "drop", n)
		if err != nil {
			return nil, err
		}
		return &bench.Sides{
			Ours:      bench.Fewer(by, above(table, least)),
			Ref:       least,
			N:         packets,
			MaxSpread: 0.5,
		}, nil
	})
}

// openCount compares flows that count with a table that counts, above no hook.
func openCount(rules ruleset, key key) opener {
	return opened(func(s *site) (*bench.Sides, error) {
		ours, counted, err := s.flows(key.match(), false, xdp.ModeAuto)
		if err != nil {
			return nil, err
		}
		theirs, err := s.counting(rules, "accept")
		if err != nil {
			return nil, err
		}
		bare, err := s.bare()
		if err != nil {
			return nil, err
		}
		return &bench.Sides{
			Ours:      above(exact(ours, counted), bare),
			Ref:       above(theirs, bare),
			N:         packets / 4,
			MaxSpread: 0.3,
		}, nil
	})
}

// exact checks that each packet of a side was counted.
func exact(s bench.Side, c *counted) bench.Side {
	return func(ctx context.Context, n int) (float64, error) {
		before, err := c.packets()
		if err != nil {
			return 0, err
		}
		ns, err := s(ctx, n)
		if err != nil {
			return 0, err
		}
		after, err := c.packets()
		if err == nil && after-before != uint64(n) {
			err = fmt.Errorf("%d packets were counted of %d", after-before, n)
		}
		return ns, err
	}
}
