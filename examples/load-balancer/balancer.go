package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// server is one server, and the packets sent to it.
type server struct {
	name string
	sent *shm.Counter
}

// balancer picks the server with the fewest packets. It belongs to one goroutine, as the counters
// that it reads do.
type balancer struct {
	mirror  *shm.Instance
	servers []server
}

// newBalancer declares a flow per address and opens the mirror that shows them.
func newBalancer(ctx context.Context, svc dataplane.Service, addrs []netip.Addr) (*balancer, error) {
	flows := make([]flow.Flow, len(addrs))
	for i, a := range addrs {
		family := "ipv4"
		if a.Is6() {
			family = "ipv6"
		}
		var err error
		flows[i], err = flow.Parse("to-"+a.String(), fmt.Sprintf("%s dst %s", family, a), flow.Options{Direction: flow.Egress})
		if err != nil {
			return nil, err
		}
	}

	placed, err := svc.AddFlows(ctx, flows...) // all, or none
	if err != nil {
		return nil, err
	}
	info, err := svc.Info(ctx)
	if err != nil {
		return nil, err
	}
	mirror, err := shm.OpenPath(info.Mirror)
	if err != nil {
		return nil, err
	}

	b := &balancer{mirror: mirror}
	for _, p := range placed {
		c, err := mirror.Counter(p.Flow.Name)
		if err != nil {
			return nil, errors.Join(err, mirror.Close())
		}
		b.servers = append(b.servers, server{name: p.Flow.Name, sent: c})
	}
	return b, nil
}

// pick returns the server that the fewest packets were sent to. This is the hot path:
// three loads and a comparison per server, no system call, no lock, no allocation.
//
// When the process that counts is gone, its last values are still there. When a process makes the
// mirror anew, Load follows. Until then it returns shm.ErrStale.
func (b *balancer) pick() (*server, error) {
	var least *server
	var fewest uint64
	for i := range b.servers {
		s := &b.servers[i]
		v, err := s.sent.Load() // one that was never sampled is 0: it has had nothing
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", s.name, err)
		}
		if least == nil || v.Packets < fewest {
			least = s
			fewest = v.Packets
		}
	}
	return least, nil
}

// wait sleeps until a server was sent so many packets, woken by the process that counts.
// It is for a goroutine with a balancer of its own, or for a moment without picks.
func (b *balancer) wait(ctx context.Context, s *server, packets uint64) (shm.Value, error) {
	return s.sent.Wait(ctx, packets)
}

func (b *balancer) close() error { return b.mirror.Close() }
