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

// server is one server with the counter of packets sent to it.
type server struct {
	name string
	sent *shm.Counter
}

// balancer picks the server with the fewest packets. Like its counters, only one goroutine at a time may use it.
type balancer struct {
	mirror  *shm.Instance
	servers []server
}

// newBalancer adds a flow per address and opens the mirror with their counters.
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

// pick returns the server with the fewest packets. This is the hot path: three loads and a comparison per server, without a
// system call, a lock or an allocation.
//
// After the counting process has died, Load keeps returning the last values. If the mirror was removed, Load returns
// shm.ErrStale until there is a new one, and then follows it.
func (b *balancer) pick() (*server, error) {
	var least *server
	var fewest uint64
	for i := range b.servers {
		s := &b.servers[i]
		v, err := s.sent.Load() // 0 before the first poll cycle, which is right for a new server
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

// wait sleeps until a server has had the given number of packets. The counting process wakes it. Do not call pick at the
// same time: use another balancer in another goroutine.
func (b *balancer) wait(ctx context.Context, s *server, packets uint64) (shm.Value, error) {
	return s.sent.Wait(ctx, packets)
}

func (b *balancer) close() error { return b.mirror.Close() }
