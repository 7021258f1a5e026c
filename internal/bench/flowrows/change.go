package flowrows

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/bench"
)

// subject is an instance whose flows are changed.
type subject struct {
	svc    dataplane.Service
	cpu    bench.Clock // CPU time of all processes that take part
	socket string      // its control socket; "" where it runs in this process
	pids   []int       // of its processes; nil where it runs in this one
}

// change is one call on an instance. It returns the CPU time that subject.cpu does not show.
type change func(context.Context, *subject) (beside int64, err error)

// one is a change whose cost is measured, and the steps around it.
type one struct {
	first  change // nil: none
	timed  change
	undone change // nil: none
	n      int    // in one round
}

// side makes n changes and returns the cost of one.
func (o one) side(s *subject) bench.Side {
	return func(ctx context.Context, n int) (float64, error) {
		var spent int64
		for range n {
			if o.first != nil {
				if _, err := o.first(ctx, s); err != nil {
					return 0, err
				}
			}
			before, err := s.cpu()
			if err != nil {
				return 0, err
			}
			beside, err := o.timed(ctx, s)
			if err != nil {
				return 0, err
			}
			after, err := s.cpu()
			if err != nil {
				return 0, err
			}
			spent += after - before + beside
			if o.undone != nil {
				if _, err := o.undone(ctx, s); err != nil {
					return 0, err
				}
			}
		}
		return float64(spent) / float64(n), nil
	}
}

func add(ctx context.Context, s *subject) (int64, error) {
	if _, err := s.svc.AddFlows(ctx, numbered(many)); err != nil {
		return 0, fmt.Errorf("adding one flow: %w", err)
	}
	return 0, nil
}

func remove(ctx context.Context, s *subject) (int64, error) {
	if err := s.svc.RemoveFlows(ctx, numbered(many).Name); err != nil {
		return 0, fmt.Errorf("removing one flow: %w", err)
	}
	return 0, nil
}

// address is the one that flow i, and no other, counts packets to.
func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func match(i int) string { return fmt.Sprintf("ipv4 dst %s tcp dport 443", address(i)) }

// numbered is flow i.
func numbered(i int) flow.Flow {
	return flow.Flow{Name: fmt.Sprintf("flow-%05d", i), Match: flow.Match{
		IPv4: &flow.IPv4{Dst: flow.Addr4{Addr: address(i).As4(), Mask: [4]byte{255, 255, 255, 255}}},
		TCP:  &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 443, Mask: 0xffff}}},
	}}
}

func flows(n int) []flow.Flow {
	out := make([]flow.Flow, n)
	for i := range out {
		out[i] = numbered(i)
	}
	return out
}
