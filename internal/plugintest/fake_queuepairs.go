package plugintest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
)

// fakePair is a queue pair of a Fake. It can connect to others of the same Fake.
type fakePair struct {
	cfg   dataplane.QueuePair
	state dataplane.QueuePairState
}

// firstQPN is the number of the first queue pair. 0 and 1 are reserved.
const firstQPN = 17

func (f *Fake) makePairs(pairs []dataplane.QueuePair) {
	f.pairs = make(map[string]*fakePair)
	for i, q := range pairs {
		q = q.WithDefaults()
		p := &fakePair{cfg: q, state: dataplane.QueuePairState{
			Name: q.Name, Device: q.Device, Port: q.Port, Type: q.Type, State: "INIT", Source: dataplane.Source{Backend: "sim"},
			Local: dataplane.QueuePairAddress{
				GID: netip.MustParseAddr("fe80::1"), QPN: firstQPN + uint32(i), PSN: uint32(i), Addr: uint64(i+1) << 12, RKey: uint32(i + 1),
			},
		}}
		for _, k := range q.Counters {
			p.state.Counters = append(p.state.Counters, dataplane.CountedOperations{
				CompletionCounter: k, Counter: dataplane.Handle{Index: f.next, Generation: 1},
			})
			f.next++
		}
		f.pairs[q.Name] = p
	}
	for _, p := range f.pairs {
		if peer, err := f.configured(p); err == nil {
			p.connect(peer)
		}
	}
}

func (p *fakePair) connect(peer dataplane.QueuePairAddress) {
	p.state.Peer, p.state.State = peer, "RTS"
}

// configured returns the address of the configured peer. Either end may name the other.
func (f *Fake) configured(p *fakePair) (dataplane.QueuePairAddress, error) {
	if p.cfg.Peer != nil {
		return *p.cfg.Peer, nil
	}
	for _, other := range f.pairs {
		if p.cfg.Connect == other.cfg.Name || p.cfg.Type == dataplane.RC && other.cfg.Connect == p.cfg.Name {
			return other.state.Local, nil
		}
	}
	return dataplane.QueuePairAddress{}, fmt.Errorf("connecting queue pair %q: %w: its configuration names no other end; give its address", p.cfg.Name, dataplane.ErrInvalid)
}

func (f *Fake) pair(name string) (*fakePair, error) {
	p := f.pairs[name]
	if p == nil {
		return nil, fmt.Errorf("queue pair %q: %w", name, dataplane.ErrNotFound)
	}
	return p, nil
}

// QueuePairs implements dataplane.Service.
func (f *Fake) QueuePairs() dataplane.QueuePairs { return fakeQueuePairs{f} }

// fakeQueuePairs implements dataplane.QueuePairs.
type fakeQueuePairs struct{ *Fake }

func (f fakeQueuePairs) List(ctx context.Context) ([]dataplane.QueuePairState, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	var out []dataplane.QueuePairState
	for _, name := range slices.SortedFunc(maps.Keys(f.pairs), strings.Compare) {
		out = append(out, f.pairs[name].state)
	}
	return out, nil
}

func (f fakeQueuePairs) Connect(ctx context.Context, name string, peer dataplane.QueuePairAddress) error {
	if err := f.enter(ctx); err != nil {
		return err
	}
	defer f.mu.Unlock()
	p, err := f.pair(name)
	if err != nil {
		return err
	}
	if peer == (dataplane.QueuePairAddress{}) {
		if peer, err = f.configured(p); err != nil {
			return err
		}
	}
	if err := peer.Validate(); err != nil {
		return fmt.Errorf("connecting queue pair %q: %w", name, err)
	}
	p.connect(peer)
	return nil
}

// Post implements dataplane.QueuePairs. An rdma_write or rdma_read with the wrong key fails and brings the queue pair to ERR.
func (f fakeQueuePairs) Post(ctx context.Context, name string, op dataplane.Operation, count int) (dataplane.Posted, error) {
	if err := f.enter(ctx); err != nil {
		return dataplane.Posted{}, err
	}
	defer f.mu.Unlock()
	p, err := f.pair(name)
	switch {
	case err != nil:
		return dataplane.Posted{}, err
	case count < 1:
		return dataplane.Posted{}, fmt.Errorf("posting to queue pair %q: %w: %d operations", name, dataplane.ErrInvalid, count)
	case op != dataplane.Send && (!p.cfg.Type.RDMA() || op != dataplane.RDMARead && op != dataplane.RDMAWrite):
		return dataplane.Posted{}, fmt.Errorf("posting to queue pair %q: %w: %s cannot be posted", name, dataplane.ErrInvalid, op)
	case p.state.State != "RTS":
		return dataplane.Posted{}, fmt.Errorf("posting to queue pair %q: %w: it is in state %s", name, dataplane.ErrNotConnected, p.state.State)
	}
	for _, other := range f.pairs {
		if other.state.Local.QPN == p.state.Peer.QPN && op != dataplane.Send && other.state.Local.RKey != p.state.Peer.RKey {
			p.state.State = "ERR"
			return dataplane.Posted{Errors: uint64(count)}, nil
		}
	}
	return dataplane.Posted{Completed: uint64(count)}, nil
}
